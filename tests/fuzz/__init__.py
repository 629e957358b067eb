"""A fuzzer: on damaged stores our reader returns the rows of the format's own library, or raises one clear error.

    python -m tests.fuzz --help

stores.py      writes a small store of each storage form
contents.py    reads and replaces the arrays of a store
mutate.py      damages a store, with mutate_arrays.py, mutate_hdf5.py, mutate_zarr.py and mutate_text.py
readers.py     opens a store with our reader and with the format's own library
counts.py      compares the counts that were read
case.py        the stages of a case, which run in child processes
verdict.py     judges a case
zygote.py      forks the child processes
__main__.py    the command
toys.py        readers with planted defects
"""
