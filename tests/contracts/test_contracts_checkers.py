"""Style, types, layers and safety of the code, by ruff, pyright, import-linter and a walk over the calls."""

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["ruff", "check", "--output-format", "concise", "--no-cache", "."],
        ["ruff", "format", "--check", "--diff", "--no-cache", "."],
        pytest.param(["pyright", "--pythonpath", sys.executable], marks=pytest.mark.slow),
    ],
    ids=["ruff check", "ruff format", "pyright"],
)
def test_the_tree_passes(command: list[str]) -> None:
    result = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )
    if result.returncode:
        pytest.fail(f"{' '.join(command)}:\n{result.stdout[-8000:]}\n{result.stderr[-2000:]}", pytrace=False)


PACKAGES = ("corpora", "loadtest", "telemetry", "dashboard", "docs_build")
# By their whole names, as they are called once imports are resolved.
FORBIDDEN_CALLS = {
    "eval": "runs data as code",
    "exec": "runs data as code",
    "compile": "makes code of data",
    "__import__": "imports what data names",
    "os.system": "starts a shell",
    "os.popen": "starts a shell",
    "subprocess.getoutput": "starts a shell",
    "subprocess.getstatusoutput": "starts a shell",
    "asyncio.create_subprocess_shell": "starts a shell",
    "asyncio.subprocess.create_subprocess_shell": "starts a shell",
    "yaml.load": "makes objects of data; use yaml.safe_load",
    "yaml.load_all": "makes objects of data; use yaml.safe_load_all",
    "yaml.full_load": "makes objects of data; use yaml.safe_load",
    "yaml.unsafe_load": "makes objects of data; use yaml.safe_load",
    "tempfile.mktemp": "names a file that somebody else may make first",
    "ssl._create_unverified_context": "verifies no certificate",
}
# Whatever of these modules is used: reading with them runs what the data says.
FORBIDDEN_MODULES = {"pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "imp"}
FORBIDDEN_ARGUMENTS = {("shell", True), ("allow_pickle", True), ("check_hostname", False)}
# What reads requests touches neither files nor processes, so that nothing in a request can name one. Each of the others
# has a reason to.
OF_REQUESTS = ("telemetry/sidecar/otlp", "telemetry/sidecar/adapters", "telemetry/sidecar/counts")
OF_REQUESTS_ALONE = (
    "telemetry/sidecar/http_connections.py",
    "telemetry/sidecar/ingest.py",
    "telemetry/sidecar/pages.py",
    "telemetry/sidecar/storing.py",
)
OF_FILES = {"os", "pathlib", "shutil", "subprocess", "tempfile", "glob", "io"}
# Modules below the packages above that read data of ours, from their own package, when they are loaded.
READS_OWN_DATA = ("telemetry/sidecar/adapters/",)


def _resolved(tree: ast.AST) -> dict[str, str]:
    """The whole name behind each name that an import of the file made."""
    imported: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                imported[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imported |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return imported


def _name(node: ast.expr, names: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value, names)}.{node.attr}"
    return ""


def dangers(source: str) -> Iterator[tuple[int, str]]:
    """The lines of a source that do what is forbidden, and why it is."""
    tree = ast.parse(source)
    names = _resolved(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            for module in modules:
                if module.partition(".")[0] in FORBIDDEN_MODULES:
                    yield node.lineno, f"{module} runs what data says"
        elif isinstance(node, ast.Call):
            name = _name(node.func, names).removeprefix("builtins.")
            if name in FORBIDDEN_CALLS:
                yield node.lineno, f"{name} {FORBIDDEN_CALLS[name]}"
            for keyword in node.keywords:
                value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
                if (keyword.arg, value) in FORBIDDEN_ARGUMENTS:
                    yield node.lineno, f"{keyword.arg}={value}"
                if keyword.arg == "verify" and value is False:
                    yield node.lineno, "verify=False verifies no certificate"
        elif isinstance(node, ast.Assign) and "CERT_NONE" in ast.unparse(node.value):
            yield node.lineno, "CERT_NONE verifies no certificate"


def file_access(source: str) -> Iterator[tuple[int, str]]:
    """The lines of a source that could touch a file or a process."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            yield from (
                (node.lineno, f"imports {module}") for module in modules if module.partition(".")[0] in OF_FILES
            )
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
            yield node.lineno, "opens a file"


def _sources() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


@pytest.mark.slow
def test_no_code_runs_data_or_weakens_tls() -> None:
    sources = _sources()
    assert len(sources) > 500
    lines = [
        f"{path.relative_to(ROOT)}:{line}: {why}" for path in sources for line, why in dangers(path.read_text("utf-8"))
    ]
    assert lines == []


def test_request_readers_touch_no_file() -> None:
    names = {path.relative_to(ROOT).as_posix(): path for path in _sources()}
    assert set(OF_REQUESTS_ALONE) <= names.keys()
    read = [name for name in names if name.startswith(OF_REQUESTS) or name in OF_REQUESTS_ALONE]
    assert len(read) > 30
    lines = [
        f"{name}:{line}: {why}"
        for name in read
        if not name.startswith(READS_OWN_DATA)
        for line, why in file_access(names[name].read_text("utf-8"))
    ]
    assert lines == []


@pytest.mark.parametrize(
    "source",
    [
        "eval(text)",
        "exec(text)",
        "import builtins\nbuiltins.eval(text)",
        "code = compile(text, 'x', 'exec')",
        "import pickle",
        "from pickle import loads",
        "import marshal as m",
        "import yaml\nyaml.load(text, Loader=yaml.Loader)",
        "from yaml import load as read\nread(text)",
        "import os\nos.system(text)",
        "from os import popen\npopen(text)",
        "import subprocess\nsubprocess.run(text, shell=True)",
        "import numpy as np\nnp.load(file, allow_pickle=True)",
        "import httpx\nhttpx.get(url, verify=False)",
        "import ssl\ncontext.verify_mode = ssl.CERT_NONE",
        "import ssl\nssl._create_unverified_context()",
        "import tempfile\ntempfile.mktemp()",
    ],
)
def test_dangerous_call_is_detected(source: str) -> None:
    assert len(list(dangers(source))) == 1


@pytest.mark.parametrize(
    "source",
    ["import re\nre.compile(text)", "model.eval()", "import yaml\nyaml.safe_load(text)", "run(command, shell=False)"],
)
def test_call_that_only_looks_dangerous_is_accepted(source: str) -> None:
    assert list(dangers(source)) == []


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("import os", 1),
        ("from pathlib import Path", 1),
        ("open(name)", 1),
        ("import os.path, json", 1),
        ("opened()", 0),
    ],
)
def test_access_to_files_is_detected(source: str, count: int) -> None:
    assert len(list(file_access(source))) == count


LAYERED = ("corpora", "loadtest", "telemetry", "dashboard")
RUN = "from importlinter.cli import lint_imports_command; lint_imports_command()"

# For each contract one import that it must refuse: the file it is written into and the line.
VIOLATIONS: dict[str, tuple[str, str]] = {
    "packages": ("telemetry/model/upward.py", "import loadtest.errors"),
    "loadtest": ("loadtest/conversation/upward.py", "import loadtest.engine.ticker"),
    "wires": ("loadtest/protocols/telephony/sideways.py", "import loadtest.protocols.openai_realtime.dialects"),
    "targets": ("loadtest/targets/assistant/sideways.py", "import loadtest.conversation.playout"),
    "telemetry": ("telemetry/model/semconv.py", "import telemetry.objectives.slo"),
    "corpora": ("corpora/manifest/upward.py", "import corpora.rendering.noise"),
    "protocols-pure": ("loadtest/protocols/clocked.py", "import time"),
    "conversation-pure": ("loadtest/conversation/connected.py", "import socket"),
    "telemetry-pure": ("telemetry/objectives/clocked.py", "import time"),
    "reports-pure": ("loadtest/reports/clocked.py", "import time"),
    "locust": ("loadtest/engine/patched.py", "import locust"),
    "gevent": ("loadtest/targets/patched.py", "import gevent"),
    "dashboard-arithmetic": ("dashboard/sums.py", "import numpy"),
}

# Modules that no layer names.
OUTSIDE_THE_LAYERS = ("loadtest/unplaced.py", "telemetry/nowhere.py")


def contracts() -> list[dict[str, Any]]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]


def lint(where: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", RUN, "--no-cache", "--no-logo"],
        cwd=where,
        env=os.environ | {"PYTHONPATH": str(where), "COLUMNS": "200", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_every_import_keeps_to_its_layer() -> None:
    result = lint(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture(scope="module")
def violations(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return import-linter's output for a copy with every violation, and with modules outside the layers."""
    where = tmp_path_factory.mktemp("copy")
    shutil.copy(ROOT / "pyproject.toml", where)
    for source in (source for package in LAYERED for source in (ROOT / package).rglob("*.py")):
        copy = where / source.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copy)
    for path, line in VIOLATIONS.values():
        with (where / path).open("a") as file:
            file.write(f"\n{line}\n")
    for path in OUTSIDE_THE_LAYERS:
        (where / path).write_text("")
    result = lint(where)
    assert result.returncode != 0
    return result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("contract", contracts(), ids=lambda contract: contract["id"])
def test_every_contract_can_fail(contract: dict[str, Any], violations: str) -> None:
    assert contract["id"] in VIOLATIONS, "a new contract wants a violation that shows it at work"
    assert f"{contract['name']} BROKEN" in violations
    path, line = VIOLATIONS[contract["id"]]
    importer, imported = path.removesuffix(".py").replace("/", "."), line.removeprefix("import ")
    assert f"{importer} -> {imported} " in violations


@pytest.mark.slow
def test_module_outside_the_layers_is_detected(violations: str) -> None:
    for path in OUTSIDE_THE_LAYERS:
        assert Path(path).stem in violations
