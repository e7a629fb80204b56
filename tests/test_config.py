"""Options are one thing in three places: a dataclass field, a TOML key, a command-line option."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spgnn.config import (
    Distribution,
    MeasureConfig,
    PartitionConfig,
    PlanConfig,
    TrainConfig,
    build,
    groups,
    layered,
    names,
    read_toml,
    select,
    to_toml,
    toml_values,
)
from spgnn.errors import InputError, UsageError

CONFIGS = (TrainConfig, PartitionConfig, MeasureConfig, PlanConfig, Distribution)


@pytest.mark.parametrize("cls", CONFIGS)
def test_every_field_has_a_help_text_and_a_default_that_passes_its_own_check(cls):
    assert all(f.metadata["help"] for f in fields(cls))
    default = cls()
    assert build(cls, {f.name: getattr(default, f.name) for f in fields(cls)}) == default


@pytest.mark.parametrize("cls", CONFIGS)
def test_the_toml_text_of_a_config_gives_the_same_config(cls, tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(to_toml(cls(), extra={"graph": "wordnet"}))
    assert read_toml(cls, path) == cls()


@settings(deadline=None)  # on a machine that is busy
@given(
    out=st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20),
    lr=st.floats(0, 1e30, allow_nan=False),
    hidden=st.integers(1, 10**6),
    bias=st.booleans(),
)
@example("".join(map(chr, (*range(1, 160), 0x2028, 0x1F600))), 1.0, 1, True)
def test_any_value_survives_toml(tmp_path_factory, out, lr, hidden, bias):
    config = build(TrainConfig, {"out": out, "lr": lr, "hidden": hidden, "bias": bias})
    path = tmp_path_factory.mktemp("toml") / "run.toml"
    path.write_text(to_toml(config), encoding="utf-8", newline="")
    assert read_toml(TrainConfig, path) == config


def test_what_stands_on_the_command_line_goes_on_top_of_the_file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("hidden = 64\nlr = 1\nweight-decay = 5e-4\n")
    config = layered(TrainConfig, toml_values(path), "run.toml", {"hidden": 32})
    assert (config.hidden, config.lr, config.weight_decay, config.layers) == (32, 1.0, 5e-4, 2)
    assert layered(TrainConfig, {"hidden": 64}, "run.toml", {"hidden": 128}).hidden == 128  # though it is the default


@pytest.mark.parametrize(
    "key, meant", [("hiden", "hidden"), ("weight_decy", "weight_decay"), ("optimiser", "optimizer")]
)
def test_an_unknown_key_is_refused_with_the_nearest_name_and_its_place(tmp_path, key, meant):
    path = tmp_path / "run.toml"
    path.write_text(f"{key} = 1\n")
    with pytest.raises(UsageError, match=f"run.toml: unknown key '{key}'; did you mean '{meant}'"):
        read_toml(TrainConfig, path)
    path.write_text("[train]\nhidden = 3\n")
    with pytest.raises(UsageError, match="unknown key 'train'"):
        read_toml(TrainConfig, path)


@pytest.mark.parametrize("values, said", [
    ({"hidden": 0}, "hidden = 0; expected at least 1"),
    ({"dropout": 1.0}, "dropout = 1; expected at least 0 and at most 0.999"),
    ({"lr": float("nan")}, "lr = nan; expected at least 0"), ({"lr": -0.1}, "lr = -0.1; expected at least 0"),
    ({"lr": 1e39}, "lr = 1e+39; expected at least 0 and at most 1e+30"),
    ({"lr": -(10**400)}, "lr = -inf; expected at least 0"),
    ({"seed": 2**63}, "seed = 9223372036854775808; expected at least 0 and at most 9223372036854775807"),
    ({"seed": 10**5000}, "seed = an integer of 16610 bits; expected at least 0"),
    ({"hidden": 1.5}, "hidden = 1.5 is float; expected int"), ({"hidden": True}, "hidden = True is bool; expected int"),
    ({"bias": 1}, "bias = 1 is int; expected bool"), ({"out": 1.5}, "out = 1.5 is float; expected str"),
    ({"norm": "lyaer"}, "norm = 'lyaer' is not known; did you mean 'layer'"), ({"dtype": ["float32"]}, "dtype"),
])  # fmt: skip
def test_a_wrong_value_is_refused_with_what_was_expected(values, said):
    with pytest.raises(UsageError) as error:
        build(TrainConfig, values)
    assert said in str(error.value)


def test_numbers_and_paths_get_the_types_of_their_fields():
    config = build(TrainConfig, {"lr": 1, "split": 3})
    assert isinstance(config.lr, float) and config.split == "3"
    given = {"lr": np.float32(0.5), "epochs": np.int64(3), "out": Path("runs"), "bias": np.bool_(False)}
    config = build(TrainConfig, given)
    assert (config.lr, config.epochs, config.out, config.bias) == (0.5, 3, "runs", False)
    assert (type(config.lr), type(config.epochs), type(config.bias)) == (float, int, bool)


@pytest.mark.parametrize(
    "text",
    ["hidden =", "= 3", "[hidden", "\x00", "hidden = 1\nhidden = 2", "a = " + "[" * 100_000, "seed = " + "9" * 5000],
    ids=range(7),
)
def test_a_file_that_is_not_toml_is_bad_input(tmp_path, text):
    path = tmp_path / "run.toml"
    path.write_text(text)
    with pytest.raises(InputError, match="run.toml: cannot be read as TOML"):
        read_toml(TrainConfig, path)


def test_a_missing_or_binary_file_is_bad_input(tmp_path):
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    for name in ("binary.toml", "absent.toml", "."):
        with pytest.raises(InputError, match="cannot be read as TOML|no such file"):
            read_toml(TrainConfig, tmp_path / name)


@pytest.mark.parametrize("out", ["a\0b", "a\udcff"])
def test_text_that_no_file_can_be_called_or_hold_is_refused(out):
    with pytest.raises(UsageError, match="out = .*; expected text that UTF-8 can hold, without a zero byte"):
        build(TrainConfig, {"out": out})


def test_a_training_distributes_with_its_options_and_defaults_for_the_keywords_that_it_has_not():
    how = select(Distribution, TrainConfig(scheme="cover", threads=3, seed=5, schedule="plain"))
    own = {f.name for f in fields(Distribution)} - {f.name for f in fields(TrainConfig)}
    assert own == {"order", "keep", "locality", "balance", "machine", "hosts"}
    assert (how.scheme, how.threads, how.seed, how.method) == ("cover", 3, 5, "metis")
    assert (how.order, how.keep, how.locality, how.balance, how.machine) == ("spmm_first", False, True, 1.03, "laptop")
    assert select(Distribution, TrainConfig()).order == "auto" and select(Distribution, TrainConfig()).keep


def test_no_two_groups_declare_one_option():
    found = [cls for cls in vars(groups).values() if hasattr(cls, "heading")]
    declared = [f.name for group in found for f in fields(group)]
    twice = {name for name in declared if declared.count(name) > 1}
    # A file or which of the graph's; of a host, a partitioner or a rank; of a sampler or a partitioner; written or read;
    # of a layer or of edges; of a stream or of files.
    assert twice == {"split", "memory", "fanout", "hops", "combine", "relabel", "edge_features", "antisymmetric"}


def test_the_lists_of_names_are_those_of_the_registries():
    from spgnn.cost.schedule import row_bytes
    from spgnn.data import known_formats
    from spgnn.layers import ACTIVATIONS
    from spgnn.layers.registry import FAMILIES
    from spgnn.partition import PARTITIONERS
    from spgnn.partition.stream.registry import STREAMING
    from spgnn.samplers import SAMPLERS

    own = [name for name, f in PARTITIONERS.items() if f.__module__.startswith("spgnn.")]
    assert set(names.PARTITIONERS) == set(own)
    assert set(names.STREAMING) == {name for name in STREAMING if name in own}
    assert set(names.FORMATS) <= set(known_formats())
    assert list(names.MODELS) == [name for name, of in FAMILIES.items() if of.make.__module__.startswith("spgnn.")]
    classes = {name for name, kind in SAMPLERS.items() if isinstance(kind.make, type)}  # a user's is a function
    assert classes == {*names.SAMPLERS, "none"}
    assert tuple(ACTIVATIONS) == ("none", *(name for name in names.ACTIVATIONS if name != "none"))
    assert all(row_bytes(1, 4, name) for name in names.WIRES)


@pytest.mark.parametrize("cls", [TrainConfig, PartitionConfig, PlanConfig, MeasureConfig])
def test_every_integer_has_an_upper_bound(cls):
    for field in fields(cls):
        if type(field.default) is int:
            with pytest.raises(UsageError, match=f"{field.name} = .*; expected at least .* and at most"):
                build(cls, {field.name: 2**63})


@pytest.mark.parametrize("fanout", [(5, 3), [5, 3], "5,3"])
def test_options_of_text_take_lists(fanout):
    assert build(TrainConfig, {"fanout": fanout}).fanout == "5,3"
