"""The options of each command are frozen, and each is set on a page."""

import re
from dataclasses import fields, replace
from pathlib import Path

import click
import pytest

from spgnn import cli
from spgnn.cli.options import config_options, flag
from spgnn.config import (
    PRESETS,
    MeasureConfig,
    PartitionConfig,
    PlanConfig,
    TrainConfig,
    VerifyConfig,
    build,
)
from spgnn.layers.registry import operator_of
from spgnn.samplers import check_options
from spgnn.training.parts.average_options import check_average

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = {
    "train": TrainConfig,
    "partition": PartitionConfig,
    "measure": MeasureConfig,
    "plan": PlanConfig,
    "verify": VerifyConfig,
}
EVERYWHERE = "config debug help json"
MODEL = (
    "model hidden layers dropout input_dropout act norm residual bias jump classifier aggregator combine heads heads_out "
    "attention attention_dropout powers teleport dtype"
)
GRAPH = "format features labels edges split"
EXCHANGE = "scheme replication wire wire_gradients machine schedule prune"
FROZEN = {
    "train": f"""
        epochs lr optimizer weight_decay decay_layers patience eval_every seed seeds mode {MODEL}
        out overwrite trace watchdog checkpoint_every resume preset {GRAPH} feature_norm operator
        method partition device threads cuda_graph decoder negatives {EXCHANGE.replace(" machine", "")}
        sampler budget walk fanout batch class_balance normalise subgraphs inductive
        parts hops interval sync correct evaluation memory personal loss metric on
    """,
    "partition": f"""
        k method balance hosts seed out hops {GRAPH} objective effort start minimise receive c fanout
        memory nodes relabel edge_features antisymmetric
    """,
    "measure": f"ranks k partition method seed {GRAPH} operator {MODEL} {EXCHANGE} eval_every overlap hosts simulate on decoder loss negatives batch",
    "plan": f"""
        ranks partition method seed {GRAPH} {MODEL} {EXCHANGE} eval_every overlap ranks_per_host memory on decoder loss
        negatives batch
    """,
    "verify": f"ranks replication seed {MODEL.removesuffix(' dtype')} format features labels edges feature_norm operator on decoder",
    "predict": "graph out proba embeddings evaluation memory scratch top pairs known",
    "report": "out pictures",
    "compare": "out",
    "info": "format features labels split write",
    "check": "format features labels split on edges seed",
    "convert": "format features labels split source target weight relabel id one_hot missing duplicates combine edge_features antisymmetric edge_labels edge_split bipartite cutoff",
    "doctor": "calibrate force full threads",
}
SPAN = re.compile(r"```[^\n]*\n(.*?)```|^(    [^\n]*)$|`([^`\n]+)`", re.M | re.S)


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_options_are_frozen_replace_one_see_contributing(command):
    expected = {"as_json" if name == "json" else name for name in f"{FROZEN[command]} {EVERYWHERE}".split()}
    params = cli.spgnn.get_command(None, command).params
    shown = {p.name for p in params if p.param_type_name == "option"}  # by help
    assert shown | {"help", "config"} == expected, "options are frozen; replace one, see CONTRIBUTING (Options)"


def test_train_has_at_most_75_options():
    assert len(fields(TrainConfig)) <= 75


def set_in(text: str) -> set[str]:
    """Flags that code of a page sets: --name with a value, or a flag without; --no-name is --name."""
    codes = ["".join(found) for found in SPAN.findall(text)]
    words = [word for code in codes for word in re.findall(r"(?<!\S)-?-[a-z][a-z0-9-]*(?:[ =](?!-)\S+)?", code)]
    switches = {flag(f.name) for cls in CONFIGS.values() for f in fields(cls) if isinstance(f.default, bool)}
    names = {re.sub("^(--no-|-(?!-))", "--", word) for word in words}
    return {re.split("[ =]", name)[0] for name in names if re.search("[ =]", name) or name in switches}


@pytest.fixture(scope="module")
def on_pages() -> set[str]:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    return set().union(*(set_in(page.read_text(encoding="utf-8")) for page in pages))


def test_flags_are_set_by_code_and_not_by_their_names():
    page = "With `--lr` and --hops 3\n\n```\nspgnn train g --epochs 3 --no-bias\n```\n\n    x --seed 1\n\nor `--wire float16`"
    assert set_in(page) == {"--epochs", "--bias", "--seed", "--wire"}


@pytest.mark.parametrize("command", CONFIGS)
def test_every_option_is_set_on_a_page(command, on_pages):
    assert not sorted({flag(f.name) for f in fields(CONFIGS[command])} - on_pages)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_a_training_and_options_that_are_given_win(name, tmp_path):
    config = build(TrainConfig, PRESETS[name].options)
    operator_of(config), check_options(config), check_average(config)
    assert command_config("--preset", name) == config
    assert command_config("--preset", name, "--epochs", "100") == replace(config, epochs=100)
    (tmp_path / "own.toml").write_text("lr = 0.5\nepochs = 7\n")
    words = ["--preset", name, "--config", str(tmp_path / "own.toml"), "--epochs", "100"]
    assert command_config(*words) == replace(config, lr=0.5, epochs=100)


def command_config(*words: str) -> TrainConfig:
    """The TrainConfig that a command line describes."""

    @click.command()
    @config_options(TrainConfig)
    def command(graph, config):
        return config

    return command.main(["wordnet", *words], standalone_mode=False)


def test_a_preset_that_is_not_known_is_refused_with_the_nearest(capsys):
    assert cli.main(["train", "wordnet", "--preset", "planetoid-gnc"]) == 2
    assert "--preset 'planetoid-gnc' is not known; did you mean 'planetoid-gcn'?" in capsys.readouterr().err


def test_a_file_may_name_a_preset_which_the_command_line_overrides(tmp_path, capsys):
    path = tmp_path / "own.toml"
    path.write_text('graph = "wordnet"\npreset = "icpp24"\nepochs = 7\n')
    assert command_config("--config", str(path)) == build(TrainConfig, PRESETS["icpp24"].options | {"epochs": 7})
    other = command_config("--config", str(path), "--preset", "planetoid-gcn")
    assert other == build(TrainConfig, PRESETS["planetoid-gcn"].options | {"epochs": 7})
    path.write_text('preset = "icpp"\n')
    assert cli.main(["train", "wordnet", "--config", str(path)]) == 2
    assert "--preset 'icpp' is not known; did you mean 'icpp24'?" in capsys.readouterr().err
    assert cli.main(["plan", "wordnet", "--config", str(path)]) == 2
    assert "unknown key 'preset'" in capsys.readouterr().err


def test_a_message_says_which_of_its_options_a_preset_has_set(capsys):
    words = ["train", "wordnet", "--preset", "planetoid-gat", "--model", "gcn"]
    assert cli.main(words) == 2
    assert "omit it with --model gcn (--attention-dropout: set by --preset planetoid-gat)" in capsys.readouterr().err
    assert cli.main([*words, "--attention-dropout", "0.5"]) == 2
    assert "set by --preset" not in capsys.readouterr().err


def test_the_page_has_every_preset_with_its_source_and_options():
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8").partition("## Presets")[2].partition("\n## ")[0]
    block = re.findall("```\n(.*?)```", page, re.S)[-1]
    found = re.findall(r"^(\S+) +# (.*)\n((?:    .*\n)+)", block, re.M)
    assert [(name, source) for name, source, _ in found] == [(name, p.source) for name, p in PRESETS.items()]
    for name, _, options in found:
        assert command_config(*options.split()) == build(TrainConfig, PRESETS[name].options)
