"""Mutations of JSON metadata, and of Arrow and SCDL stores."""

import json
import struct
from typing import Any

import numpy as np

from tests.fuzz.contents import InapplicableError, arrow_buffers
from tests.fuzz.mutate import mutation, struck
from tests.fuzz.stores import SCDL_FILES, Store

Rng = np.random.Generator
VALUES = [None, 0, 1, -1, 2**31, 2**40, 2**63, 2**70, 0.5, "", "x", [], {}, [0], [-1], [1], [1, 1], True, "NaN"]


def _some_json(store: Store, rng: Rng) -> str:
    names = [name for name in store.files() if name.endswith((".json", ".zarray", ".zgroup", ".zattrs"))]
    names = [name for name in names if len(store.read(name)) > len("{}")]
    arrays = [name for name in names if "X/data" in name or "X/indices" in name or "X/indptr" in name]
    names = arrays if arrays and rng.random() < 0.8 else names
    if not names:
        raise InapplicableError("no JSON")
    return str(rng.choice(names))


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """(container, key or index) of every value of a JSON document, at any depth."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [place for key, value in items for place in [(tree, key), *_places(value)]]


def _edited(store: Store, rng: Rng, edit) -> str:
    name = _some_json(store, rng)
    tree = json.loads(store.read(name))
    description = edit(tree)
    store.write(name, json.dumps(tree).encode())
    return f"{name}: {description}"


@mutation("JSON value", "zarr", "arrow")
def json_value(store: Store, rng: Rng) -> str:
    def edit(tree: Any) -> str:
        places = _places(tree)
        holder, key = places[int(rng.integers(len(places)))]
        old, choices = holder[key], VALUES
        if isinstance(old, int) and not isinstance(old, bool):
            choices = [0, 1, -1, old - 1, old + 1, old * 2, old // 2, 2**31, 2**40, 2**63, float(old), str(old), -old]
        holder[key] = choices[int(rng.integers(len(choices)))]
        return f"{key} is {holder[key]!r}, was {old!r}"[:150]

    return _edited(store, rng, edit)


@mutation("JSON key removed", "zarr", "arrow")
def json_key_removed(store: Store, rng: Rng) -> str:
    def edit(tree: Any) -> str:
        places = _places(tree)
        holder, key = places[int(rng.integers(len(places)))]
        del holder[key]
        return str(key)

    return _edited(store, rng, edit)


@mutation("JSON damaged", "zarr", "arrow")
def json_damaged(store: Store, rng: Rng) -> str:
    name, how = _some_json(store, rng), int(rng.integers(8))
    old = bytes(store.read(name))
    new = [b"", b"{}", b"[]", b"null", b"5", b"not JSON", old[: len(old) // 2], b"\xff\xfe" + old][how]
    store.write(name, new)
    return f"{name}: {new[:20]!r}"


@mutation("zarr layout", "zarr")
def zarr_layout(store: Store, rng: Rng) -> str:
    """Edits the metadata of an array: its shape, chunk shape, dtype, codecs or the like."""
    part, array = int(rng.integers(len(store.form.paths))), str(rng.choice(["data", "indices", "indptr"]))
    folder = f"{store.form.paths[part]}/X/{array}"
    n = int(rng.choice([0, 1, -1, 2, 64, 127, 129, 256, 640, 2**31, 2**40]))
    how = int(rng.integers(6))
    if "v2" in store.form.traits:
        tree = json.loads(store.read(f"{folder}/.zarray"))
        options = [
            ("chunks", [n]),
            ("shape", [n]),
            ("dtype", str(rng.choice(["|u1", "<f8", ">f4", "<i8", "|S4", "x"]))),
        ]
        options += [("fill_value", 7), ("compressor", None), ("order", "F")]
        key, tree[options[how][0]] = options[how]
        store.write(f"{folder}/.zarray", json.dumps(tree).encode())
        return f"{folder}, {key}: {tree[key]}"
    tree = json.loads(store.read(f"{folder}/zarr.json"))
    field = ["chunk_grid", "shape", "data_type", "fill_value", "codecs", "inner"][how]
    if how == 0:
        tree["chunk_grid"]["configuration"]["chunk_shape"] = [n]
    elif how == 1:
        tree["shape"] = [n]
    elif how == 2:
        n = tree["data_type"] = str(
            rng.choice(["uint8", "int8", "float64", "int64", "uint32", "bool", "complex64", "x"])
        )
    elif how == 3:
        tree["fill_value"] = n = int(rng.choice([1, 7, 60]))
    else:
        inner = tree["codecs"][0].get("configuration", {})
        codecs = (
            inner.get("codecs", tree["codecs"]) if rng.random() < 0.7 else inner.get("index_codecs", tree["codecs"])
        )
        if how == 5 and "chunk_shape" in inner:
            inner["chunk_shape"] = [n]
        elif rng.random() < 0.3:
            del codecs[int(rng.integers(len(codecs)))]
        else:
            codecs[0]["configuration"] = {"endian": "big"}
            n = "big endian"
    store.write(f"{folder}/zarr.json", json.dumps(tree).encode())
    return f"{folder}, {field}: {n}"


@mutation("state.json: files", "arrow")
def state_files(store: Store, rng: Rng) -> str:
    state = json.loads(store.read("state.json"))
    entries, how = state["_data_files"], int(rng.integers(8))
    i = int(rng.integers(len(entries)))
    outside = store.folder.parent / "outside.arrow"
    other = entries[1 - i]["filename"] if len(entries) > 1 else "data-0.arrow"
    outside.write_bytes(bytes(store.read(other)))  # a valid file with other rows
    names = ["../outside.arrow", str(outside), "", ".", "nothing.arrow", "data-0.arrow\0", 5]
    if how < 7:
        entries[i]["filename"] = names[how]
    else:
        state["_data_files"] = [entries[0], *entries] if rng.random() < 0.5 else entries[:1]
    store.write("state.json", json.dumps(state).encode())
    return f"{state['_data_files']}"[:200]


@mutation("offsets of one column", "arrow")
def offsets_of_one_column(store: Store, rng: Rng) -> str:
    batches = arrow_buffers(store)
    batch, column = batches[int(rng.integers(len(batches)))], str(rng.choice(["genes", "expressions"]))
    offsets = batch.get(store, column, "indptr")
    amount = int(rng.choice([1, -1, 1000, -1000, 10**6, -(2**31), 2**30]))
    first = int(rng.integers(len(offsets)))
    offsets[first:] = offsets[first:].astype(np.int64) + amount
    batch.put(store, column, "indptr", offsets)
    return f"{batch.file}, {column}, {amount} from {first} on"


@mutation("offsets of both columns", "arrow")
def offsets_of_both_columns(store: Store, rng: Rng) -> str:
    batches = arrow_buffers(store)
    batch, amount = batches[int(rng.integers(len(batches)))], int(rng.choice([1, -1, 1000, -1000, 2**30]))
    for column in ("genes", "expressions"):
        batch.put(store, column, "indptr", batch.get(store, column, "indptr").astype(np.int64) + amount)
    return f"{batch.file}, all + {amount}"


@mutation("record batch header", "arrow")
def record_batch_header(store: Store, rng: Rng) -> str:
    """Damages the header of an Arrow message, which holds lengths and offsets of buffers, and null counts."""
    names = [name for name in store.files() if name.endswith(".arrow")]
    name = str(rng.choice(names))
    content = store.read(name)
    starts, at = [], content.find(b"\xff\xff\xff\xff")
    while at >= 0:
        if at % 8 == 0:
            starts.append(at)
        at = content.find(b"\xff\xff\xff\xff", at + 4)
    if not starts:
        raise InapplicableError("no message")
    at = int(rng.choice(starts))
    return f"message at {at}, {struck(store, name, rng, at, at + int(rng.choice([8, 64, 300])))}"


@mutation("written otherwise", "arrow")
def written_otherwise(store: Store, rng: Rng) -> str:
    """Writes the rows with nulls, compressed bodies, other types, a renamed column, or a list that is too short."""
    import pyarrow as pa

    name = str(rng.choice([name for name in store.files() if name.endswith(".arrow")]))
    table = pa.ipc.open_stream(pa.py_buffer(bytes(store.read(name)))).read_all()
    lists = {key: table[key].to_pylist() for key in ("genes", "expressions")}
    row, how, options = int(rng.integers(len(table))), int(rng.integers(9)), None
    kinds = {"genes": pa.list_(pa.int32()), "expressions": pa.list_(pa.float32())}
    column = str(rng.choice(["genes", "expressions"]))
    if how == 0:
        lists[column][row] = None
    elif how == 1 and lists[column][row]:
        lists[column][row][0] = None
    elif how in (2, 3):
        options = pa.ipc.IpcWriteOptions(compression="zstd" if how == 2 else "lz4")
    elif how == 4:
        kinds[column] = pa.list_(pa.int64() if column == "genes" else pa.float64())
    elif how == 5:
        kinds["genes"] = pa.list_(pa.float32())
    elif how == 6:
        kinds[column] = pa.list_(pa.string())
        lists[column] = [[str(value) for value in each] for each in lists[column]]
    elif how == 7:
        lists[column + "2"], kinds[column + "2"] = lists.pop(column), kinds[column]
    else:
        lists[column] = [each[:-1] if i == row else each for i, each in enumerate(lists[column])]
    new = pa.table({key: pa.array(values, kinds[key]) for key, values in lists.items()})
    with pa.OSFile(str(store.folder / name), "wb") as sink, pa.ipc.new_stream(sink, new.schema, options=options) as out:
        out.write_table(new, max_chunksize=40)
    return f"{name}: {how}, {column}, row {row}"


@mutation("SCDL header", "scdl")
def scdl_header(store: Store, rng: Rng) -> str:
    return struck(store, "header.sch", rng)


@mutation("SCDL header lengths", "scdl")
def scdl_header_lengths(store: Store, rng: Rng) -> str:
    """Changes the length or the dtype that the header states for an array."""
    content, name = store.read("header.sch"), str(rng.choice(list(SCDL_FILES)))
    at = content.find(name.encode()) + len(name)
    if at < len(name):
        raise InapplicableError("no such array")
    if rng.random() < 0.5:
        (old,) = struct.unpack(">Q", content[at : at + 8])
        new = int(rng.choice([0, 1, old - 1, old + 1, old // 2, 2**31, 2**62]))
        content[at : at + 8] = struct.pack(">Q", new)
    else:
        new = int(rng.integers(0, 11))
        content[at + 8 : at + 12] = struct.pack(">I", new)
    store.write("header.sch", bytes(content))
    return f"{name}: {new}"


@mutation("SCDL file cut or extended", "scdl")
def scdl_file(store: Store, rng: Rng) -> str:
    name = str(rng.choice(list(SCDL_FILES.values())))
    content = bytes(store.read(name))
    new = [content[: len(content) // 2], content[:-8], content[:-1], content + bytes(8), content + content, content[8:]]
    chosen = new[int(rng.integers(len(new)))]
    store.write(name, chosen)
    return f"{name}: {len(chosen)} bytes, was {len(content)}"
