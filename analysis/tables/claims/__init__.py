"""The ledger of the numbers that five documents print as results, and what a machine's records say of each.

ledger: what a claim is, and the files that list them, one a document. judge: the verdict on a claim. table: the tables
reproduction.md and reproduction.csv.
"""
