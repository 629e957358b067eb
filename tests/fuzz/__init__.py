"""Damaged stores: our reader gives the rows that the format's own library gives, or one clear error.

    python -m tests.fuzz --help

stores.py writes a small store of each form; contents.py reads and writes what lies within one; mutate.py damages it,
with mutate_arrays.py, mutate_hdf5.py and mutate_zarr.py; readers.py opens it with our reader and with the format's own
library; case.py is what the child process of a case does; verdict.py judges it; zygote.py forks the children;
__main__.py is the command; toys.py holds readers with planted defects.
"""
