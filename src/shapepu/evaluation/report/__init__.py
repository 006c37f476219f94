"""What a run was and how good it is, for a person: figures, and one HTML file that opens offline."""
