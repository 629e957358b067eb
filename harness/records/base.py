"""Encodes every record, which is a frozen dataclass, as one line of JSON, and decodes it."""

import json
from dataclasses import asdict, fields, is_dataclass
from typing import Any, ClassVar, Protocol


class Record(Protocol):
    """What all kinds of records have in common.

    A kind may have a class variable `LATER`: the names of fields that were added later. Such a field is None if a line
    lacks it.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]
    provenance: dict[str, Any]
    schema: int


def encode(record: Record) -> str:
    """The record as one line of JSON, without the line break. Raises ValueError for nan or infinity."""
    return json.dumps({f.name: getattr(record, f.name) for f in fields(record)}, default=_values, allow_nan=False)


def decode[T: Record](kind: type[T], line: str) -> T:
    """The record that a line of JSON holds. Raises ValueError, or KeyError for a missing key, if it holds none."""
    values = json.loads(line)
    name = kind.__name__.lower()
    if not isinstance(values, dict):
        raise ValueError(f"it is no {name}")
    if values.get("schema") != kind.schema:
        raise ValueError(f"it is not of schema {kind.schema}")
    later = dict.fromkeys(getattr(kind, "LATER", ()))
    if differing := sorted(set(values | later) ^ {f.name for f in fields(kind)}):
        raise ValueError(f"it has other fields than a {name}: {', '.join(differing)}")
    for field in fields(kind):
        is_object = is_dataclass(field.type) or getattr(field.type, "__origin__", None) is dict
        if is_object and not isinstance(values[field.name], dict):
            raise ValueError(f"its {field.name} is no object")
        if is_dataclass(field.type):
            values[field.name] = _build(field.type, values[field.name])
    return kind(**values)


def _values(value: Any) -> dict[str, Any]:
    """A field's value that is a dataclass, as a dict that JSON can hold."""
    return value.to_dict() if hasattr(value, "to_dict") else asdict(value)


def _build(kind: type, values: dict[str, Any]) -> Any:
    try:
        return kind.from_dict(values) if hasattr(kind, "from_dict") else kind(**values)
    except (TypeError, AttributeError) as error:
        raise ValueError(str(error)) from error
