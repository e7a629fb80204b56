"""Measures of the code that moving code cannot meet, and today's exceptions (house_known.json), which only get fewer.

`python tests/measures.py` prints what breaks a rule; `--shrink` takes from the list what the code no longer needs. After a rebase
with a conflict in the list: take main's list and run it again.
"""

import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "spgnn"
LIST = Path(__file__).with_name("house_known.json")
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)

# rule -> (limit, why). What stands above it is an exception in house_known.json, with its value.
LIMITS = {
    # Own methods and those of all bases in spgnn, properties too, without __dunder__: a reader of a call looks in all.
    "methods": 20,
    # Parameters of a function or constructor, keyword-only ones too, without self: a call is read without counting.
    # spgnn.train is the public exception: its keywords, and the lines of its docstring, are the reference of users.
    "parameters": 8,
    # self.x = of a class and its bases in spgnn, and fields of a dataclass that is not frozen: what can change at any
    # time is remembered while reading. Fields of a frozen record are not: they are named once, and never change. Nor are
    # the weights of a layer, self.x = self.weight(...): they are the letters of its equation.
    "attributes": 10,
    # Lines from def to the end: a function is seen on one screen.
    "lines": 60,
    # Classes of one public name: an import, an error and a search then mean one thing.
    "same name": 1,
    # Files that import each other, type hints and import_module included: none of them is understood alone.
    "circle": 1,
}

UNIT = (
    r"(?:[kMGT]i?B|m?s|min|bytes?|seconds?|minutes|hours|times|twice|pass|passes|rows?|nodes?|columns?|edges?|numbers?"
    r"|values?|entries|messages|threads?|lanes?|nonzeros?|launches|weights?|bool|id|bias|warp|products?|floats?|lines?"
    r"|files?|classes|one|two|three|[0-9][0-9.,]*)"
)
EACH = (
    "rank|node|row|epoch|step|key|layer|part|edge|product|thread|column|head|batch|nonzero|process|run|message|word"
    "|neighbour|target|hop|block|line|stage|tile|pass|graph|machine|core|pair|chunk|group|value|entry|draw|device"
    "|element|host|class"
)
VERB = "has|have|reads?|owns|sends|is|that|of|does|needs|takes|holds|stores|computes|may|can|gets"
HABITS = {  # habit -> pattern, in text of one line
    "that of": r"\bthat of\b",
    "those of the": r"\bthose of the\b",
    "None: that of": r"\bNone: that of\b",
    "a rank, as a rate": rf"\b{UNIT} an? (?:{EACH})\b(?! (?:{VERB})\b)",
    "at hand": r"\bat hand\b",
    "goes on": r"\bgoes on\b",
    "asked for": r"\basked for\b",
}


@dataclass
class ClassFacts:
    """What a class of the sources says of itself."""

    file: str
    imports: set[str]  # absolute names; which of two classes of one name is a base
    bases: list[str]
    methods: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)


def sources() -> dict[str, str]:
    """Return name -> text of every Python file of the package."""
    return {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}


def _module(file: str) -> str:
    """spmm/operator/view.py -> spgnn.spmm.operator.view, layers/__init__.py -> spgnn.layers."""
    return ("spgnn." + file.removesuffix(".py").replace("/", ".")).removesuffix(".__init__")


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _is_mutable_dataclass(node: ast.ClassDef) -> bool:
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    return any(d.split("(")[0].endswith("dataclass") and "frozen=True" not in d for d in decorators)


def class_facts(file: str, node: ast.ClassDef, imports: set[str]) -> ClassFacts:
    """Read the methods, attributes and bases that a class names itself."""
    facts = ClassFacts(file, imports, [ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases])
    for inner in node.body:
        if isinstance(inner, FUNCTION) and not _is_dunder(inner.name):
            facts.methods.add(inner.name)
        elif isinstance(inner, ast.Assign) and isinstance(inner.value, ast.Call):
            if ast.unparse(inner.value.func) == "property":
                facts.methods |= {target.id for target in inner.targets if isinstance(target, ast.Name)}
        elif isinstance(inner, ast.AnnAssign) and _is_mutable_dataclass(node):
            facts.attributes.add(ast.unparse(inner.target))
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
            if isinstance(inner.value, ast.Name) and inner.value.id == "self":
                facts.attributes.add(inner.attr)
    facts.attributes -= weights_of(node)
    return facts


def weights_of(node: ast.ClassDef) -> set[str]:
    """Return the attributes of a layer that `self.weight` makes."""
    found = set()
    for assign in (inner for inner in ast.walk(node) if isinstance(inner, ast.Assign)):
        (target, *_), value = assign.targets, assign.value
        targets = target.elts if isinstance(target, ast.Tuple) else [target]
        values = (
            value.elts if isinstance(value, ast.Tuple) and len(value.elts) == len(targets) else [value] * len(targets)
        )
        found |= {
            t.attr for t, v in zip(targets, values) if isinstance(t, ast.Attribute) and "self.weight(" in ast.unparse(v)
        }
    return found


def with_bases(facts: ClassFacts, classes: dict[str, list[ClassFacts]], seen: tuple = ()) -> tuple[set, set]:
    """Return (methods, attributes) of a class and all of its bases in the package."""
    methods, attributes = set(facts.methods), set(facts.attributes)
    for base in facts.bases:
        found = [other for other in classes.get(base, []) if other is not facts and other not in seen]
        named = [one for one in found if _module(one.file) + f".{base}" in facts.imports or one.file == facts.file]
        for other in named or found[:1]:
            more_methods, more_attributes = with_bases(other, classes, (*seen, facts))
            methods |= more_methods
            attributes |= more_attributes
    return methods, attributes


def _functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef, bool]]:
    """Yield (name with its classes, function, is a method)."""
    for node in ast.iter_child_nodes(tree):
        name = f"{prefix}{getattr(node, 'name', '')}"
        if isinstance(node, FUNCTION):
            yield name, node, isinstance(tree, ast.ClassDef)
        yield from _functions(node, f"{name}." if isinstance(node, (*FUNCTION, ast.ClassDef)) else prefix)


def count_parameters(node: ast.FunctionDef, is_method: bool) -> int:
    """Count all parameters but self or cls; *args and **options are one each."""
    of = node.args
    is_static = any(ast.unparse(decorator) == "staticmethod" for decorator in node.decorator_list)
    listed = len(of.posonlyargs) + len(of.args) + len(of.kwonlyargs) + (of.vararg is not None) + (of.kwarg is not None)
    return listed - (is_method and not is_static)


def imports_of(name: str, text: str, with_hints: bool = False) -> list[tuple[int, str]]:
    """Return every module that a file imports, at any depth, as (line, absolute name).

    with_hints: also what only type hints import, and import_module(".x", __package__). Of import_module(f".{x}", ...)
    these are the modules of its package that the file names in a string.
    """
    tree = ast.parse(text)
    package = ["spgnn", *name.split("/")[:-1]]
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and not with_hints
        for inner in ast.walk(node)
    }
    found = []
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found += [
                (node.lineno, f"{module}.{alias.name}" if module.startswith("spgnn") else module)
                for alias in node.names
            ]
        elif with_hints and isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            found += [(node.lineno, module) for module in _imported_late(node.args[0], tree, package)]
    return found


def _imported_late(argument: ast.expr, tree: ast.Module, package: list[str]) -> list[str]:
    """Return the modules that import_module(argument, __package__) may import, each as MODULE.*."""
    modules = []
    if isinstance(argument, ast.Constant):
        modules = [argument.value if argument.value[0] != "." else ".".join([*package, argument.value[1:]])]
    elif ast.unparse(argument) == "__package__":
        modules = [".".join(package)]
    elif ast.unparse(argument).startswith("f'.{"):
        strings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        strings = {string for string in strings if isinstance(string, str) and re.fullmatch(r"[a-z_][\w.]*", string)}
        modules = [".".join([*package, string]) for string in sorted(strings)]
    return [f"{module}.*" for module in modules]


def import_graph(texts: dict[str, str]) -> dict[str, set[str]]:
    """Return which files each file imports, lazily and for type hints too; texts: name -> source of every file."""
    home = {}
    for name in texts:
        home[_module(name)] = name
    graph = {}
    for name, text in texts.items():
        graph[name] = set()
        for _, module in imports_of(name, text, with_hints=True):
            if re.search(r"\._\w+$", module):  # an extension module, or `from .. import __version__`
                continue
            target = home.get(module) or home.get(module.rpartition(".")[0])  # from MODULE import NAME
            if target not in (None, name):
                graph[name].add(target)
    return graph


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of files in which each file reaches each other one by imports."""

    @cache
    def reached(start: str) -> frozenset[str]:
        found, left = set(), [start]
        while left:
            new = graph.get(left.pop(), set()) - found
            found |= new
            left += new
        return frozenset(found)

    groups = {tuple(sorted(b for b in reached(a) | {a} if a in reached(b) or a == b)) for a in graph}
    return [list(group) for group in sorted(groups) if len(group) > 1]


def measure(texts: dict[str, str]) -> dict[str, Counter]:
    """Return rule -> name -> value, for all rules of LIMITS; texts: name -> source of every file.

    Names are of classes, of functions with their class, and of files; without a file, so that a move changes none.
    """
    found: dict[str, Counter] = {rule: Counter() for rule in LIMITS}
    classes: dict[str, list[ClassFacts]] = {}
    for file, text in texts.items():
        tree, imports = ast.parse(text), {module for _, module in imports_of(file, text)}
        for name, node, is_method in _functions(tree):
            _keep(found["parameters"], name, count_parameters(node, is_method))
            _keep(found["lines"], name, node.end_lineno - node.lineno + 1)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(class_facts(file, node, imports))
    for name, ones in classes.items():
        for one in ones:
            methods, attributes = with_bases(one, classes)
            _keep(found["methods"], name, len(methods))
            _keep(found["attributes"], name, len(attributes))
        if not name.startswith("_"):
            found["same name"][name] = len(ones)
    found["circle"].update({file: len(group) for group in circles(import_graph(texts)) for file in group})
    return found


def _keep(values: Counter, name: str, value: int) -> None:
    """Of two classes or functions of one name, the larger counts."""
    values[name] = max(values[name], value)


def exceptions(found: dict[str, Counter]) -> dict[str, dict[str, int]]:
    """Return rule -> name -> value of what is above its limit."""
    return {
        rule: {name: value for name, value in sorted(values.items()) if value > LIMITS[rule]}
        for rule, values in found.items()
    }


def house_faults(found: dict[str, Counter], known: dict[str, dict[str, int]]) -> list[str]:
    """Return what is above its limit otherwise than the list says: more is a fault of the code, less one of the list."""
    faults = []
    for rule, above in exceptions(found).items():
        for name in sorted(above.keys() | known[rule].keys()):
            value, listed = above.get(name, LIMITS[rule]), known[rule].get(name, LIMITS[rule])
            if value > listed:
                faults.append(f"{rule} of {name}: {value}, at most {listed}")
            elif value < listed:
                faults.append(f"{rule} of {name}: {value}, listed with {listed}; run python tests/measures.py --shrink")
    return faults


def prose() -> Iterator[str]:
    """Yield the text of every source and page, without line ends and comment signs."""
    kinds = (".py", ".h", ".cpp", ".cu", ".cuh", ".md")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*")), *sorted(PACKAGE.rglob("*"))]:
        if path.suffix in kinds:
            yield in_one_line(path.read_text())


def in_one_line(text: str) -> str:
    return re.sub(r"\s+(?:(?://|#)\s+)?", " ", text)


def count_habits(texts: Iterator[str]) -> Counter:
    """Return habit -> how often it is written."""
    counts = Counter(dict.fromkeys(HABITS, 0))
    for text in texts:
        counts.update({habit: len(re.findall(pattern, text, re.I)) for habit, pattern in HABITS.items()})
    return counts


def shrink(known: dict, found: dict[str, Counter], habits: Counter) -> dict:
    """Return the list without what is mended; nothing in it grows."""
    above = exceptions(found)
    less = {
        rule: {n: min(most, above[rule][n]) for n, most in known[rule].items() if n in above[rule]} for rule in above
    }
    return less | {"words": {habit: min(most, habits[habit]) for habit, most in known["words"].items()}}


def main() -> None:
    known, found, habits = json.loads(LIST.read_text()), measure(sources()), count_habits(prose())
    if "--shrink" in sys.argv:
        known = shrink(known, found, habits)
        LIST.write_text(json.dumps(known, indent=1) + "\n")
    print(*house_faults(found, known), sep="\n")


if __name__ == "__main__":
    main()
