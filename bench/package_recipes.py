"""Recipes with public packages, whose source is untouched; each is imported where its recipe is made."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn import Module

from bench.plain_recipes import by_adam
from bench.problems import Size
from bench.recipes import Log, Scan, Training, python_scan

ACTIONS, EPISODE = 4, 20


def layer_step(lstm: nn.LSTM, carry: Any, x: tuple[Tensor, Tensor]) -> tuple[Any, Tensor]:
    """One step of a layer `[1, N, D]`, from zeros where an episode begins."""
    features, begins = x
    keeps = (1.0 - begins)[None, :, None]
    ys, carry = lstm(features[None], tuple(keeps * state for state in carry))
    return carry, ys[0]


def gru_step(cell: Module, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    h = cell(x, h)
    return h, h


def environment(observed: int) -> Any:
    """Episodes of some length, in which an action must be the place of the largest number seen in the step before."""
    import gymnasium

    class Remember(gymnasium.Env):  # type: ignore[misc]
        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (observed,), np.float32)
        action_space = gymnasium.spaces.Discrete(ACTIONS)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            self.left, self.seen = int(self.np_random.integers(2, EPISODE)), self._draw()
            return self.seen, {}

        def _draw(self) -> Any:
            return self.np_random.normal(size=observed).astype(np.float32)

        def step(self, action: Any) -> Any:
            reward = float(action == self.seen[:ACTIONS].argmax())
            self.left, self.seen = self.left - 1, self._draw()
            return self.seen, reward, self.left == 0, False, {}

    return Remember()


def sb3_ppo(scan: Scan, size: Size) -> Training:
    """`RecurrentPPO`: a rollout, which the policy acts in, then steps on it."""
    from sb3_contrib import RecurrentPPO
    from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
    from stable_baselines3.common.vec_env import DummyVecEnv

    class Policy(RecurrentActorCriticPolicy):  # type: ignore[misc]
        """The package's own, whose loop over steps is a scan."""

        @staticmethod
        def _process_sequence(features: Tensor, states: Any, begins: Tensor, lstm: nn.LSTM) -> Any:
            if scan is python_scan:
                return RecurrentActorCriticPolicy._process_sequence(features, states, begins, lstm)
            N = states[0].shape[1]
            xs = features.reshape(N, -1, lstm.input_size).swapaxes(0, 1), begins.reshape(N, -1).swapaxes(0, 1)
            states, ys = scan(partial(layer_step, lstm), tuple(states), xs, batch_axis=1)
            return ys.transpose(0, 1).flatten(0, 1), states

    environments = DummyVecEnv([partial(environment, 8)] * size.N)
    options = {"lstm_hidden_size": size.H, "net_arch": [size.H]}
    ppo = RecurrentPPO(
        Policy, environments, n_steps=size.T, batch_size=size.T * size.N, n_epochs=1, seed=0, policy_kwargs=options
    )
    ppo.learn(size.T * size.N)

    def train(steps: int, log: Log) -> None:
        for _ in range(steps):
            ppo.train()
            log(ppo.logger.name_to_value["train/loss"])

    return ppo.policy, train


class Reset(Module):
    """The recurrence of a policy `[N, T, D]`."""

    def __init__(self, scan: Scan, lstm: nn.LSTM) -> None:
        super().__init__()
        self.scan, self.lstm = scan, lstm

    def forward(self, features: Tensor, begins: Tensor, h: Tensor, c: Tensor) -> Tensor:
        xs = features.transpose(0, 1), begins[..., 0].transpose(0, 1).float()
        carry = tuple(state[:, 0].transpose(0, 1) for state in (h, c))
        _, ys = self.scan(partial(self.step, self.lstm), carry, xs, batch_axis=1)
        return ys.transpose(0, 1)

    @staticmethod
    def step(lstm: nn.LSTM, carry: Any, x: tuple[Tensor, Tensor]) -> tuple[Any, Tensor]:
        """`layer_step` of a layer that takes `[N, 1, D]`."""
        keeps = (1.0 - x[1])[None, :, None]
        ys, carry = lstm(x[0][:, None], tuple(keeps * state for state in carry))
        return carry, ys[:, 0]


def torchrl_ppo(scan: Scan, size: Size) -> Training:
    """`ClipPPOLoss` and `GAE` on a rollout; the loop's recurrence is `LSTMModule`, which splits and pads episodes."""
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule, TensorDictSequential
    from torchrl.modules import ActorValueOperator, LSTMModule, ProbabilisticActor, ValueOperator
    from torchrl.objectives import ClipPPOLoss
    from torchrl.objectives.value import GAE

    T, N, H = size.T, size.N, size.H
    embed, lstm = nn.Sequential(nn.Linear(8, H), nn.Tanh()), nn.LSTM(H, H, batch_first=True)
    keys = ["embedded", "h", "c"]
    if scan is python_scan:
        core = LSTMModule(
            lstm=lstm, in_keys=keys, out_keys=["features", ("next", "h"), ("next", "c")], default_recurrent_mode=True
        )
    else:
        core = TensorDictModule(Reset(scan, lstm), ["embedded", "is_init", "h", "c"], ["features"])
    common = TensorDictSequential(TensorDictModule(embed, ["observation"], ["embedded"]), core)
    head = TensorDictModule(nn.Linear(H, ACTIONS), ["features"], ["logits"])
    chosen = {"distribution_class": torch.distributions.Categorical, "return_log_prob": True}
    policy = ProbabilisticActor(head, ["logits"], **chosen)
    model = ActorValueOperator(common, policy, ValueOperator(nn.Linear(H, 1), ["features"]))
    objective = ClipPPOLoss(model.get_policy_operator(), model.get_value_operator(), entropy_coeff=0.01)
    advantage = GAE(gamma=0.99, lmbda=0.95, value_network=model.get_value_operator(), deactivate_vmap=True)

    begins = torch.rand(N, T + 1, 1) < 1 / EPISODE
    seen, states = torch.randn(N, T + 1, 8), torch.zeros(N, T, 1, H)
    ends = begins[:, 1:]
    later = {"observation": seen[:, 1:], "is_init": ends, "h": states, "c": states, "reward": torch.randn(N, T, 1)}
    now = {"observation": seen[:, :-1], "is_init": begins[:, :-1], "h": states, "c": states}
    data = TensorDict({**now, "next": {**later, "done": ends, "terminated": ends}}, [N, T])
    with torch.no_grad():
        model.get_policy_operator()(data)

    def loss() -> Tensor:
        with torch.no_grad():
            advantage(data)
        found = objective(data)
        total: Tensor = found["loss_objective"] + found["loss_critic"] + found["loss_entropy"]
        return total

    return by_adam(model, loss)


def spiking_net(scan: Scan, size: Size) -> Training:
    """The convolutional net of snntorch's tutorial, on frames [T, N, 1, H, H]."""
    import snntorch
    from snntorch import surrogate

    class Net(Module):
        def __init__(self) -> None:
            super().__init__()
            neuron = partial(snntorch.Leaky, beta=0.9, spike_grad=surrogate.fast_sigmoid(slope=25))
            self.conv1, self.lif1 = nn.Conv2d(1, 12, 5, padding=2), neuron()
            self.conv2, self.lif2 = nn.Conv2d(12, 24, 5, padding=2), neuron()
            self.fc, self.lif3 = nn.Linear(24 * (size.H // 4) ** 2, 10), neuron()

        def forward(self, carry: Any, x: Tensor) -> Any:
            first, second, last = carry
            spikes, first = self.lif1(F.max_pool2d(self.conv1(x), 2), first)
            spikes, second = self.lif2(F.max_pool2d(self.conv2(spikes), 2), second)
            spikes, last = self.lif3(self.fc(spikes.flatten(1)), last)
            return (first, second, last), (spikes, last)

    net, N, H = Net(), size.N, size.H
    frames, labels = (torch.rand(size.T, N, 1, H, H) < 0.3).float(), torch.arange(N) % 10
    first = torch.zeros(N, 12, H // 2, H // 2), torch.zeros(N, 24, H // 4, H // 4), torch.zeros(N, 10)

    def loss() -> Tensor:
        _, (_, potentials) = scan(net, first, frames)
        return F.cross_entropy(potentials.flatten(0, 1), labels.repeat(size.T))

    return by_adam(net, loss)


def lightning(scan: Scan, size: Size) -> Training:
    """`Trainer(precision="bf16-mixed")` on a GRU between linear layers."""
    import lightning.pytorch as pl

    class Model(pl.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.before, self.cell = nn.Linear(size.H, size.H), nn.GRUCell(size.H, size.H)
            self.after, self.log_of = nn.Linear(size.H, 1), Log()

        def training_step(self, batch: Any, number: int) -> Tensor:
            xs, wanted = batch
            _, ys = scan(partial(gru_step, self.cell), xs.new_zeros(size.N, size.H), self.before(xs))
            return F.mse_loss(self.after(ys).float(), wanted)

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), 1e-2)

        def on_train_batch_end(self, outputs: Any, batch: Any, number: int) -> None:
            self.log_of(outputs["loss"])

    model = Model()
    xs = torch.randn(size.T, size.N, size.H)
    batch = xs, xs.mean(2, keepdim=True).cumsum(0).tanh()

    def train(steps: int, log: Log) -> None:
        model.log_of = log
        options = dict.fromkeys(
            ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
        )
        trainer = pl.Trainer(accelerator="cpu", precision="bf16-mixed", max_steps=steps, **options)
        trainer.fit(model, torch.utils.data.DataLoader([batch] * steps, batch_size=None))

    return model, train
