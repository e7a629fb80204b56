"""Machine files: read, written, refused with the key that is wrong."""

import pytest

from spgnn.cost.machines import load_machine, machine_names
from spgnn.errors import InputError


@pytest.mark.parametrize("name", machine_names())
def test_a_machine_that_comes_along_reads_back_what_it_writes(name, tmp_path):
    machine = load_machine(name)
    assert machine.name == name
    path = tmp_path / "machine.toml"
    path.write_text(machine.to_toml("two\nlines"))
    assert load_machine(path) == machine
    assert path.read_text().startswith("# two\n# lines\n")


def test_ranks_fill_hosts_in_blocks():
    machine = load_machine("perlmutter-like")
    assert machine.host_of(range(6)).tolist() == [0, 0, 0, 0, 1, 1]
    assert [machine.hosts(size) for size in (1, 4, 5, 1024)] == [1, 1, 2, 256]


def test_ranks_on_the_cores_of_a_host_share_its_rates_and_gpus_do_not():
    laptop, gpus = load_machine("laptop"), load_machine("perlmutter-like")
    alone = laptop.with_ranks(1)
    assert alone.gemm_float32 == 2 * laptop.gemm_float32 and alone.nonzero_s == laptop.nonzero_s / 2
    assert alone.bandwidth == laptop.bandwidth
    assert laptop.placed(4).spmm_memory == laptop.spmm_memory / 2
    assert laptop.with_ranks(8) == laptop
    assert gpus.with_ranks(1).gemm_float32 == gpus.gemm_float32


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("latency_s", "latenzy_s", "unknown key 'latenzy_s'; did you mean 'latency_s'"),
        ("stream = 24e9\n", "", "stream missing; `spgnn doctor --calibrate FILE` writes all keys"),
        ("stream = 24e9", "stream = 0", "stream = 0; expected a number above 0"),
        ("stream = 24e9", "stream = nan", "stream = nan; expected a number above 0"),
        ("stream = 24e9", "stream = 1e-320", "stream = 1e-320; expected a number above 0, 1e-30 to 1e+30"),
        ("stream = 24e9", "stream = 1e300", "stream = 1e+300; expected a number above 0, 1e-30 to 1e+30"),
        ("stream = 24e9", 'stream = "fast"', "stream = 'fast'; expected a number above 0"),
        ("ranks_per_host = 2", "ranks_per_host = 1.5", "ranks_per_host = 1.5; expected an integer of 1 or more"),
        ("ranks_per_host = 2", "ranks_per_host = 0", "ranks_per_host = 0; expected an integer of 1 or more"),
        ("shares_cores = true", "shares_cores = 1", "shares_cores = 1; expected true or false"),
        ("stream = 24e9", "stream 24e9", "cannot be read as TOML"),
    ],
)
def test_a_wrong_machine_file_is_refused_with_file_and_key(tmp_path, old, new, message):
    text = load_machine("laptop").to_toml()
    text = text.replace("stream = 2.4e+10", "stream = 24e9")
    assert old in text
    path = tmp_path / "wrong.toml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InputError, match="wrong.toml: ") as found:
        load_machine(path)
    assert message in str(found.value)
