"""`entry.toml`: conversion of an entry to text and back."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cellbed.archive.errors import TraceError
from cellbed_node import inputs

if TYPE_CHECKING:
    from cellbed.archive.entry import Entry

ENTRY_FILE: Final = "entry.toml"
_LARGEST = 1 << 24


def entry_text(entry: Entry) -> str:
    """Return the entry as TOML; unknown or empty values are left out."""
    import tomli_w

    return tomli_w.dumps(_without_unknown(entry.model_dump(mode="json")))


def read_entry(folder: Path) -> Entry:
    """Return the entry in `folder`; the folder's name is the entry's. Raises TraceError ``FILE: reason``."""
    from pydantic import ValidationError

    path = folder / ENTRY_FILE
    try:
        return _parse(inputs.content(path, _LARGEST), folder.name)
    except FileNotFoundError:
        raise TraceError(f"{path}: missing") from None
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TraceError(f"{path}: not text in UTF-8") from None
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, fault["loc"]))
        if fault["type"] == "missing":
            raise TraceError(f"{path}: missing key '{where}' (file empty or truncated)") from None
        raise TraceError(f"{path}: {where}: {fault['msg'].removeprefix('Value error, ')}") from None
    except (ValueError, RecursionError) as error:  # errors of tomllib, and errors of int() inside it
        raise TraceError(f"{path}: not TOML: {str(error).splitlines()[0]}") from None


@functools.lru_cache(16)
def _parse(content: bytes, name: str) -> Entry:
    import tomllib

    from cellbed.archive.entry import Entry

    return Entry.model_validate({**tomllib.loads(content.decode()), "name": name})


def _without_unknown(value: Any) -> Any:
    """Return a value without unknown parts: null, which TOML lacks, empty values, NaN and infinity."""
    if isinstance(value, dict):
        return {key: _without_unknown(each) for key, each in value.items() if not _is_unknown(each)}
    if isinstance(value, list):
        return [_without_unknown(each) for each in value if not _is_unknown(each)]
    return value


def _is_unknown(value: Any) -> bool:
    return value is None or value in ("", {}, []) or (isinstance(value, float) and not math.isfinite(value))
