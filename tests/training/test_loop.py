"""Training as a whole, in this process: it learns, it resumes exactly, it leaves what it says."""

import json
from dataclasses import replace

import pytest
import torch
from toy import write_toy

from warpwright.errors import DataError
from warpwright.kernels import ops
from warpwright.training import checkpoint, generate, loop, settings
from warpwright.training import run as runs
from warpwright.training.trainer import Trainer


def start(tmp_path, out, precision="fp8", seed=0, overrides=None, **training):
    tmp_path.mkdir(exist_ok=True)
    config, text = write_toy(tmp_path, **training)
    return runs.create(runs.Run(out, settings.load(str(config), precision, overrides), str(text), "torch", seed))


def losses(records):
    return [record["loss"] for record in records if not record.get("final")]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of 12 steps, and its records."""
    folder = tmp_path_factory.mktemp("finished")
    run = start(folder, folder / "run")
    return run, list(loop.train(run))


def test_it_learns(tmp_path):
    records = list(loop.train(start(tmp_path, tmp_path / "run", "fp32", steps=60, eval_every=30, checkpoint_every=60)))
    assert records[-1]["bits_per_byte_last"] < 0.6 * records[-1]["bits_per_byte_first"]
    assert records[-2]["loss"] < 0.6 * records[0]["loss"]


def test_the_records_say_what_happened(finished):
    run, records = finished
    steps, final = records[:-1], records[-1]
    assert [record["step"] for record in steps] == list(range(12))
    assert all({"loss", "mtp_loss", "gradient_norm", "learning_rate", "tokens_per_s"} <= record.keys() for record in steps)
    assert [record["step"] for record in steps if "bits_per_byte" in record] == [0, 5, 10]
    for shares in steps[0]["load"].values():
        assert len(shares) == 4 and sum(shares) == pytest.approx(1.0)
    assert final["final"] is True and final["bits_per_byte_first"] == steps[0]["bits_per_byte"]
    assert final["launches"] == {} and final["seconds"] >= final["step_seconds"] > 0 and final["sample"]
    assert [json.loads(line) for line in run.log.read_text().splitlines()] == steps
    assert json.loads(run.final.read_text())["bits_per_byte_last"] == final["bits_per_byte_last"]
    assert "<svg" in (run.folder / "report.html").read_text() and checkpoint.steps(run.checkpoints) == [8, 12]


def test_equal_seeds_give_equal_losses_and_others_do_not(finished, tmp_path):
    _, records = finished
    assert losses(loop.train(start(tmp_path, tmp_path / "a"))) == losses(records)
    assert losses(loop.train(start(tmp_path, tmp_path / "b", seed=1)))[:3] != losses(records)[:3]


@pytest.mark.parametrize("stop", [2, 6, 8])
def test_a_run_that_stopped_goes_on_as_if_it_had_not(finished, tmp_path, stop):
    whole, records = finished
    run = start(tmp_path, tmp_path / "run")
    records_before = loop.train(run)
    for _ in range(stop + 1):
        next(records_before)
    records_before.close()
    resumed = list(loop.train(runs.resume(run.folder, {})))
    assert resumed[0]["step"] == stop // 4 * 4
    assert losses(resumed) == losses(records)[stop // 4 * 4:]
    assert resumed[-1]["bits_per_byte_first"] == records[-1]["bits_per_byte_first"]
    assert resumed[-1]["bits_per_byte_last"] == records[-1]["bits_per_byte_last"] and resumed[-1]["sample"] == records[-1]["sample"]
    end, expected = checkpoint.load(run.checkpoints)[1], checkpoint.load(whole.checkpoints)[1]
    assert end.keys() == expected.keys() and all(torch.equal(end[name], expected[name]) for name in end)
    assert [json.loads(line)["step"] for line in run.log.read_text().splitlines()] == list(range(12))


def test_a_finished_run_can_be_made_longer(finished, tmp_path):
    run = start(tmp_path, tmp_path / "run", steps=4)
    list(loop.train(run))
    records = list(loop.train(runs.resume(run.folder, {"training.steps": 6})))
    assert [record.get("step") for record in records] == [4, 5, None]
    with pytest.raises(DataError, match="the run is at step 6 already, past --steps 3"):
        list(loop.train(runs.resume(run.folder, {"training.steps": 3})))


def test_what_would_change_a_runs_numbers_is_refused_on_resuming(finished):
    run, _ = finished
    for asked, message in [({"seed": 1}, "seed is 0 in this run, not 1"), ({"kernels": "ptx"}, "kernels is torch"),
                           ({"training.batch": 3}, "batch is 2 in this run, not 3"), ({"recipe.matmul": "bf16"}, "matmul is fp8")]:
        with pytest.raises(DataError, match=f"{message}.*leave it out with --resume"):
            runs.resume(run.folder, asked)
    assert runs.resume(run.folder, {"seed": 0, "training.batch": 2, "data": run.data, "training.steps": None}).settings == run.settings


def test_changed_text_is_noticed(tmp_path):
    run = start(tmp_path, tmp_path / "run", steps=1)
    list(loop.train(run))
    (tmp_path / "text.py").write_text((tmp_path / "text.py").read_text() + "# more\n")
    with pytest.raises(DataError, match="the text has changed since the run"):
        list(loop.train(runs.resume(run.folder, {})))


def test_a_folder_in_use_is_refused(finished, tmp_path):
    run, _ = finished
    with pytest.raises(DataError, match="holds a run already; go on with it with --resume"):
        runs.create(run)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match="holds other files and no run"):
        runs.create(replace(run, folder=tmp_path))
    with pytest.raises(DataError, match="is not a folder"):
        runs.create(replace(run, folder=tmp_path / "notes.txt"))


def test_new_runs_get_new_folders_and_the_newest_is_found(tmp_path):
    assert runs.new_folder(tmp_path / "runs", "tiny").name == "tiny-1"
    start(tmp_path, tmp_path / "runs" / "tiny-1").save()
    assert runs.new_folder(tmp_path / "runs", "tiny").name == "tiny-2"
    assert runs.newest(tmp_path / "runs").name == "tiny-1"
    with pytest.raises(DataError, match="there is no run to resume"):
        runs.newest(tmp_path / "nothing")


def test_a_damaged_run_file_and_a_folder_without_one_are_told(tmp_path):
    with pytest.raises(DataError, match="holds no run"):
        runs.load(tmp_path)
    (tmp_path / "run.json").write_text('{"settings": {}}')
    with pytest.raises(DataError, match=r"run\.json: is damaged"):
        runs.load(tmp_path)


def test_the_recipes_parts_reach_the_training_state(tmp_path):
    config, _ = write_toy(tmp_path)
    batch = torch.randint(0, 300, (2, 34), generator=torch.Generator().manual_seed(0))
    fp8 = Trainer(settings.load(str(config)), ops.get("torch"), 0)
    assert fp8.tensors()["first.head"].dtype == torch.bfloat16 and "average.head" in fp8.tensors()
    fp8.step(0, batch)
    with fp8.averaged():
        inside = fp8.model.head.detach().clone()
    assert not torch.equal(inside, fp8.model.head) and torch.equal(inside, fp8.average.weights["head"])
    plain = Trainer(settings.load(str(config), "bf16"), ops.get("torch"), 0)
    assert plain.tensors()["first.head"].dtype == torch.float32 and "average.head" not in plain.tensors()
    with pytest.raises(DataError, match="another model or recipe"):
        plain.restore(fp8.tensors())


def test_the_routers_biases_move_by_the_update_speed(tmp_path):
    config, _ = write_toy(tmp_path)
    trainer = Trainer(settings.load(str(config), "bf16", {"training.bias_update_speed": 0.25}), ops.get("torch"), 0)
    step = trainer.step(0, torch.randint(0, 300, (2, 34), generator=torch.Generator().manual_seed(0)))
    for name, layer in trainer.model.expert_layers().items():
        expected = [0.25 * ((share < 0.25) - (share > 0.25)) for share in step.load[name]]
        assert layer.router.bias.tolist() == expected


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path):
    config, _ = write_toy(tmp_path)
    trainer = Trainer(settings.load(str(config), "fp32"), ops.get("torch"), 0)
    with torch.no_grad():
        trainer.model.head.fill_(float("nan"))
    with pytest.raises(DataError, match=r"step 3: the loss .* not finite; lower training.learning_rate"):
        trainer.step(3, torch.zeros(2, 34, dtype=torch.int64))


def test_a_model_beyond_this_computers_memory_is_refused_before_it_is_made():
    with pytest.raises(DataError, match=r"deepseek-v3-671b: training 682.64 billion parameters takes .* GB"):
        loop.require_memory(settings.load("deepseek-v3-671b"))


def test_sampling_is_by_seed_and_temperature_and_the_cuts():
    logits = torch.tensor([0.0, 1.0, 2.0, 3.0])

    def draws(**cuts):
        random = torch.Generator().manual_seed(0)
        return {generate.draw(logits, random, **{"temperature": 1.0, "top_k": None, "top_p": None, **cuts}) for _ in range(200)}

    assert draws() == {0, 1, 2, 3} and draws(temperature=0) == {3} and draws(top_k=2) == {2, 3}
    assert draws(top_p=0.8) == {2, 3} and draws(top_p=0.0, top_k=1) == {3}


def test_a_run_is_loaded_for_sampling(finished, tmp_path):
    run, records = finished
    model, words = generate.load_model(run)
    text = generate.sample(model, words, "", 8, seed=run.seed)
    assert text == records[-1]["sample"]
    averaged, _ = generate.load_model(run, average=True)
    assert not torch.equal(averaged.head, model.head)
    assert generate.sample(model, words, "", 5).strip() is not None
    with pytest.raises(DataError, match="has no checkpoint yet"):
        unborn = start(tmp_path, tmp_path / "run")
        words.save(unborn.tokenizer)
        generate.load_model(unborn)
