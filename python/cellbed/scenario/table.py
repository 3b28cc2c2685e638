"""Tables of a scenario file, and values with several forms: per direction or for both, plain or as a table."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import core_schema

from cellbed.support.ways import WAYS

Path = tuple[str | int, ...]
"""Position of a value in the file: keys from the top, and indices in lists."""


class Table(BaseModel):
    """A table of the file: no keys but the known ones, no conversions between types."""

    # Most tables are only parts of others, whose validators contain theirs: build a validator at its first use.
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=True, defer_build=True
    )

    def stage(self) -> dict[str, Any]:
        """Return the table in the form of the path model: quantities are whole numbers, with the unit in the key.

        A field's annotation determines its form (:attr:`cellbed.scenario.fields.TextField.stage`).
        """
        found: dict[str, Any] = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            # In an optional type, the annotation is nested: ``Annotated[int, …] | None``.
            inner = [each for choice in get_args(field.annotation) for each in getattr(choice, "__metadata__", ())]
            forms = [each.stage for each in (*field.metadata, *inner) if hasattr(each, "stage")]
            found |= forms[0](name, value) if forms and value is not None else {name: value}
        return found


def written(default: object) -> Any:
    """Return a default as in the file; it is validated like values of the file."""
    return default


PLAIN = "plain"
BOTH = "both ways"
APART = "each way"
"""Names of the forms in pydantic's errors; they are no keys of the file."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ways(Generic[T]):
    """A value for each direction."""

    uplink: T
    downlink: T


_STRICT = core_schema.CoreConfig(strict=True, allow_inf_nan=False)
"""The configuration of `Table`, for values that are not tables."""


@dataclass(frozen=True, slots=True)
class EachWay:
    """Annotates a `Ways`: in the file a value for both directions, or a table with ``uplink`` and ``downlink``.

    value: type of one direction's value. default: value of an omitted direction, as in the file; None stands for
    itself.
    """

    value: Any
    default: Any = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        one = handler.generate_schema(self.value)
        left_out = one if self.default is not None else core_schema.nullable_schema(one)
        field = core_schema.with_default_schema(left_out, default=self.default, validate_default=True)
        fields: dict[str, core_schema.TypedDictField] = {
            way: core_schema.typed_dict_field(field, required=False) for way in WAYS
        }
        apart = core_schema.typed_dict_schema(fields, extra_behavior="forbid", config=_STRICT)
        return core_schema.tagged_union_schema(
            {
                BOTH: core_schema.no_info_after_validator_function(lambda value: Ways(value, value), one),
                APART: core_schema.no_info_after_validator_function(lambda values: Ways(**values), apart),
            },
            discriminator=self._form,
            serialization=core_schema.wrap_serializer_function_ser_schema(_show, schema=one),
        )

    def _form(self, value: object) -> str:
        return APART if isinstance(value, Mapping) and is_apart(value) else BOTH


def _show(ways: Ways[Any], show: Callable[[Any], Any]) -> Any:
    if ways.uplink == ways.downlink:
        return show(ways.uplink)
    return {way: None if (value := getattr(ways, way)) is None else show(value) for way in WAYS}


def is_apart(value: Mapping[str, object]) -> bool:
    """Return whether a table is meant to have a value for each direction."""
    if "kind" in value:
        return False
    return not value or any(difflib.get_close_matches(key, WAYS, n=1, cutoff=0.65) for key in value)


@dataclass(frozen=True, slots=True)
class PlainOr:
    """Annotates a value that the file states plainly or as one of several tables, which differ by their ``kind``.

    plain: type of the plain form; show: converts a value to this form.
    """

    plain: Any
    tables: tuple[type[Table], ...]
    show: Any = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        forms = {PLAIN: handler.generate_schema(self.plain)}
        for table in self.tables:
            (kind,) = table.model_fields["kind"].annotation.__args__  # type: ignore[union-attr]
            forms[kind] = handler.generate_schema(table)
        return core_schema.tagged_union_schema(
            forms,
            discriminator=_kind,
            serialization=core_schema.plain_serializer_function_ser_schema(self._show),
        )

    def _show(self, value: object) -> Any:
        if isinstance(value, BaseModel):
            return value.model_dump(mode="json", by_alias=True)
        return self.show(value) if self.show is not None else value


def table_kind(value: object) -> str | None:
    """Return the ``kind`` of a table, or PLAIN for a table without a kind."""
    if isinstance(value, BaseModel):
        return getattr(value, "kind", PLAIN)
    kind = value.get("kind", PLAIN) if isinstance(value, Mapping) else PLAIN
    return kind if isinstance(kind, str) else None


def _kind(value: object) -> str | None:
    if not isinstance(value, Mapping):
        return PLAIN
    kind = value.get("kind")
    return kind if isinstance(kind, str) and kind != PLAIN else None
