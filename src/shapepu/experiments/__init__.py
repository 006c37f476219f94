"""Tables of a paper as data: which methods, on which data, with which switches; run, stored and rendered."""
