"""What the house rules measure in Python source; tests/test_house.py applies them to the tree."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

Function = ast.FunctionDef | ast.AsyncFunctionDef

BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)
DIRECTIVE = re.compile(r"#\s*(noqa(:\s*[A-Z]+\d+([,\s]+[A-Z]+\d+)*)?|type:\s*ignore(\[[^\]]*\])?)")
REASON = re.compile(r"[A-Za-z]{3}")
MACHINE_PATH = re.compile(r"(?<![\w.$}])/(work|root)/")
NOT_AN_API = ("TypeVar", "ParamSpec", "TypeVarTuple")


@dataclass(frozen=True)
class Measured:
    """A function and its sizes."""

    name: str
    line: int
    lines: int  # without the docstring
    arguments: int  # without self and cls
    nesting: int


def measure(tree: ast.Module) -> list[Measured]:
    """Return the sizes of every function of a module, methods and inner functions included."""
    methods = {id(f) for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for f in node.body}
    functions = [node for node in ast.walk(tree) if isinstance(node, Function)]
    return [
        Measured(f.name, f.lineno, length(f), arguments(f, method=id(f) in methods), nesting(f.body)) for f in functions
    ]


def length(function: Function) -> int:
    """Return a function's lines, its docstring not counted."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function, clean=False) is None:
        return lines
    docstring = function.body[0]
    return lines - ((docstring.end_lineno or docstring.lineno) - docstring.lineno + 1)


def arguments(function: Function, *, method: bool) -> int:
    """Return how many arguments a function takes, keyword-only and starred ones included, self and cls not."""
    args = function.args
    count = len(args.posonlyargs) + len(args.args) + len(args.kwonlyargs) + bool(args.vararg) + bool(args.kwarg)
    static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in function.decorator_list)
    return count - (method and not static)


def nesting(body: list[ast.stmt]) -> int:
    """Return how deep blocks stand inside each other; elif does not count as deeper, an inner function starts anew."""
    return max((depth(statement) for statement in body), default=0)


def depth(statement: ast.stmt) -> int:
    """Return how many blocks a statement stacks up, itself included."""
    if not isinstance(statement, BLOCKS):
        return 0
    following = elif_of(statement)
    inside = 1 + max(nesting(branch) for branch in branches(statement))
    return inside if following is None else max(inside, depth(following))


def elif_of(statement: ast.stmt) -> ast.If | None:
    """Return the elif of an if; `else` with nothing but an if inside reads the same."""
    if isinstance(statement, ast.If) and len(statement.orelse) == 1 and isinstance(statement.orelse[0], ast.If):
        return statement.orelse[0]
    return None


def branches(block: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Yield the statement lists of a block: its body, handlers, cases, else (elif not) and finally."""
    yield getattr(block, "body", [])
    yield getattr(block, "orelse", []) if elif_of(block) is None else []
    yield getattr(block, "finalbody", [])
    for part in (*getattr(block, "handlers", []), *getattr(block, "cases", [])):
        yield part.body


def public_names(tree: ast.Module, *, package: str | None = None) -> set[str]:
    """Return the public names a module defines; for an __init__ of `package`, what it takes from there as well."""
    return {name for node in tree.body for name in defined(node, package) if is_public(name)}


def is_public(name: str) -> bool:
    """Return whether a name is meant for users of the module."""
    return not name.startswith("_") or name == "__version__"


def defined(node: ast.stmt, package: str | None) -> list[str]:
    """Return the names that one statement of a module defines; type variables are nobody's API."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(value=ast.Call(func=ast.Name(id=maker))) if maker in NOT_AN_API:
            return []
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case ast.ImportFrom(module=module, names=names, level=level) if package is not None:
            ours = level > 0 or (module or "").split(".")[0] == package
            return [alias.asname or alias.name for alias in names] if ours else []
    return []


def declared_all(tree: ast.Module) -> set[str] | None:
    """Return the names in a module's __all__, or None when it has none that can be read."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]:
            return set(ast.literal_eval(node.value))
    return None


def unreasoned(source: str) -> list[int]:
    """Return the lines whose noqa or type: ignore gives no reason."""
    comments = [t for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type == tokenize.COMMENT]
    silencing = [t for t in comments if DIRECTIVE.search(t.string)]
    return [t.start[0] for t in silencing if not REASON.search(DIRECTIVE.sub("", t.string))]


def undocumented_tests(tree: ast.Module) -> list[str]:
    """Return the names of test functions without a docstring."""
    functions = [node for node in ast.walk(tree) if isinstance(node, Function)]
    return [f.name for f in functions if f.name.startswith("test_") and not ast.get_docstring(f)]


def uses(tree: ast.Module, banned: set[str]) -> list[tuple[int, str]]:
    """Return (line, name) wherever a module imports or reads one of the dotted names."""
    found = [(line, name) for node in ast.walk(tree) for line, name in mentioned(node) if name in banned]
    return sorted(set(found))


def mentioned(node: ast.AST) -> list[tuple[int, str]]:
    """Return (line, dotted name) for what a node imports or reads."""
    match node:
        case ast.Import(names=names, lineno=line):
            return [(line, alias.name) for alias in names]
        case ast.ImportFrom(module=str(module), names=names, lineno=line):
            return [(line, module), *((line, f"{module}.{alias.name}") for alias in names)]
        case ast.Attribute(lineno=line):
            return [(line, ast.unparse(node))]
    return []


def machine_paths(text: str) -> list[int]:
    """Return the lines that hold an absolute path of the machine somebody worked on."""
    return [number for number, line in enumerate(text.splitlines(), 1) if MACHINE_PATH.search(line)]
