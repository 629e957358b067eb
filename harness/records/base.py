"""The codec of all records: a frozen dataclass to one line of JSON, and back."""

import json
from dataclasses import asdict, fields, is_dataclass
from typing import Any, ClassVar, Protocol


class Record(Protocol):
    """The fields of every record. `LATER`, if a kind has it, names fields that older lines lack; they become None."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    provenance: dict[str, Any]
    schema: int


def encode(record: Record) -> str:
    """One line of JSON, without the line break. ValueError for a number that JSON cannot hold: nan or infinity."""
    return json.dumps({f.name: getattr(record, f.name) for f in fields(record)}, default=_values, allow_nan=False)


def decode[T: Record](kind: type[T], line: str) -> T:
    """The record of a line; ValueError says what is wrong with the line."""
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
    """The values of a field that is a dataclass."""
    return value.to_dict() if hasattr(value, "to_dict") else asdict(value)


def _build(kind: type, values: dict[str, Any]) -> Any:
    try:
        return kind.from_dict(values) if hasattr(kind, "from_dict") else kind(**values)
    except (TypeError, AttributeError) as error:
        raise ValueError(str(error)) from error
