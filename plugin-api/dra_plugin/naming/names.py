"""Names and texts of the API: which are valid, and the nearest valid one.

Sources: ``pkg/apis/resource/validation`` and ``apimachinery/pkg/util/validation`` of Kubernetes 1.37 (the rules only).
"""

import functools
import re
import zlib

from dra_plugin.errors import SetupError

__all__ = [
    "LABEL",
    "attribute_name_rule",
    "check_driver_name",
    "device_name",
    "is_condition",
    "is_label",
    "is_version",
    "label_key",
    "label_value",
    "pool_name",
    "version",
]

LABEL = "lower-case letters, digits and '-', 63 at most (DNS label)"
_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_LABEL.pattern}(?:\.{_LABEL.pattern})*")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORD = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_NUMBER = r"(?:0|[1-9][0-9]*)"
_PART = rf"(?:{_NUMBER}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION = re.compile(
    rf"({_NUMBER}(?:\.{_NUMBER}){{2}})(?:-({_PART}(?:\.{_PART})*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
_LOOSE_VERSION = re.compile(r"[vV]?([0-9]+(?:\.[0-9]+)*)(?:-([0-9A-Za-z.-]+))?(?:\+([0-9A-Za-z.-]+))?")
_BIGGEST = 2**64 - 1


def is_label(text: str) -> bool:
    """Tell whether ``text`` is a DNS label of at most 63 characters."""
    return len(text) <= 63 and _LABEL.fullmatch(text) is not None  # noqa: PLR2004 - RFC 1123


def check_driver_name(name: str) -> None:
    """Raise SetupError unless ``name`` is a DNS subdomain of at most 63 characters without upper case."""
    if not _is_subdomain(name, 63):
        raise SetupError(f"driver name {name!r}: must be a lower-case DNS subdomain of at most 63 characters")


def device_name(text: str) -> str:
    """Return ``text`` if it is a DNS label, else the nearest one; the same text always gives the same name.

    Lower case; what is not allowed becomes ``-``; a long name is cut and ends in a checksum of the whole.
    Raises ValueError when nothing is left.
    """
    return text if is_label(text) else _shortened(_as_label(text), 63)


def pool_name(text: str) -> str:
    """Return ``text`` if it is a valid pool name (DNS subdomains joined by ``/``, 253 at most), else the nearest one.

    Raises ValueError when nothing is left.
    """
    if len(text) <= 253 and all(_is_subdomain(part) for part in text.split("/")):  # noqa: PLR2004 - the API's limit
        return text
    parts = (".".join(filter(None, map(_words, part.split(".")))) for part in text.split("/"))
    plain = "/".join(filter(None, parts))
    if not plain:
        raise ValueError(f"no pool name can be made of {text!r}")
    return _shortened(plain, 253)


@functools.lru_cache(maxsize=1024)
def attribute_name_rule(name: str) -> str | None:
    """Return the rule that ``name`` breaks as the name of an attribute or capacity, or None."""
    domain, slash, identifier = name.rpartition("/")
    if slash and not _is_subdomain(domain, 63):
        return "the part before the only '/' must be a DNS subdomain of at most 63 characters"
    if len(identifier) > 32 or not _IDENTIFIER.fullmatch(identifier):  # noqa: PLR2004 - the API's limit
        return "must be a C identifier of at most 32 characters, optionally after one domain and '/'"
    return None


def is_condition(name: str) -> bool:
    """Tell whether ``name`` is a condition type (the syntax of a label's key)."""
    prefix, slash, word = name.rpartition("/")
    return _is_word(word) and (not slash or _is_subdomain(prefix))


def is_version(text: str) -> bool:
    """Tell whether ``text`` is a semantic version 2.0.0 of at most 64 characters whose numbers fit 64 bits (CEL)."""
    match = _VERSION.fullmatch(text) if len(text) <= 64 else None  # noqa: PLR2004 - the API's limit
    if not match:
        return False
    numbers = match[1].split(".") + [part for part in (match[2] or "").split(".") if part.isdigit()]
    return all(int(number) <= _BIGGEST for number in numbers)


def version(text: str) -> str | None:
    """Return ``text`` as a semantic version, or None: ``v550.54`` is ``550.54.0``, ``570.124.06`` is ``570.124.6``.

    Numbers after the third, which have no place in a semantic version, go into the build part: ``1.2.3+4``.
    """
    if is_version(text):
        return text
    match = _LOOSE_VERSION.fullmatch(text.strip())
    if not match:
        return None
    numbers = [number.lstrip("0") or "0" for number in match[1].split(".")]
    core = ".".join([*numbers, "0", "0"][:3] if len(numbers) <= 3 else numbers[:3])  # noqa: PLR2004 - major.minor.patch
    build = ".".join(filter(None, [*numbers[3:], match[3]]))
    made = core + (f"-{match[2]}" if match[2] else "") + (f"+{build}" if build else "")
    return made if is_version(made) else None


def label_key(text: str) -> str | None:
    """Return ``text`` as a label's key (``prefix/word``, the word 63 at most), or None when no word is left."""
    if is_condition(text):
        return text
    prefix, _, word = text.rpartition("/")
    kept = label_value(word)
    domain = ".".join(filter(None, map(_words, prefix.split(".")))) if prefix else ""
    if not kept:
        return None
    return f"{domain}/{kept}" if domain and _is_subdomain(domain) else kept


def label_value(text: str) -> str:
    """Return ``text`` as a label's value: letters, digits, ``-_.``, 63 at most; it may be empty."""
    if not text or _is_word(text):
        return text
    return re.sub(r"[^-A-Za-z0-9_.]", "-", text)[:63].strip("-_.")


def _is_word(text: str) -> bool:
    return len(text) <= 63 and _WORD.fullmatch(text) is not None  # noqa: PLR2004 - the API's limit


def _is_subdomain(text: str, limit: int = 253) -> bool:
    return len(text) <= limit and _SUBDOMAIN.fullmatch(text) is not None


def _as_label(text: str) -> str:
    plain = _words(text)
    if not plain:
        raise ValueError(f"no DNS label can be made of {text!r}")
    return plain


def _words(text: str) -> str:
    return re.sub(r"[^a-z0-9-]", "-", text.lower()).strip("-")


def _shortened(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return f"{text[: limit - 9].rstrip('-./')}-{zlib.crc32(text.encode()):08x}"
