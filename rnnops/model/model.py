"""Models: layers with their parameters, an optimizer, compiled nets, and a summary as text.

`compile` calls `forward` and `train_one_batch` once, with placeholders. The ops that they write are nets, which are
compiled like any other net. For data of another shape the function is called again. If it writes the same ops, the
compiled net is used again. Two threads must not train one model at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any, ClassVar

import numpy as np

from rnnops.compiler.api.feeds import memory_named
from rnnops.compiler.memory.memory import on_host, read_only
from rnnops.errors import ModelError, SaveError, check_flags, named_arguments
from rnnops.model import store as saving
from rnnops.model.layer import (
    LOSS,
    Arguments,
    Graph,
    Graphs,
    Layer,
    LayerNames,
    WrittenLayer,
    arguments_of,
    being_written,
    blobs_of,
    layers_in,
    minimize,
    name_layers,
    takes,
)
from rnnops.model.optimizers import Optimizer
from rnnops.model.store import HOST, OPTIMIZER, Arrays, ArrayStore, by_dotted_names, home_of
from rnnops.net.blob import Blob
from rnnops.net.op import dotted
from rnnops.types import FLOATS, dtype_name
from rnnops.util import aligned, readable, spaced

HEAD = ("layer", "kind", "output", "parameters")


def summary(name: str, layers: Iterable[tuple[str, Layer]], compiled: Mapping[str, Graph], store: ArrayStore) -> str:
    """Tables of a compiled model; the names of its layers if it is not compiled."""
    if not compiled:
        listed = "".join(f"\n  {dotted(path)}: {type(layer).__name__}" for path, layer in layers)
        return f"{name}, not compiled{listed}"
    graph = next(iter(compiled.values()))
    inputs = ", ".join(f"{key}: {kind}" for key, kind in graph.types.items())
    return "\n".join([f"{name}({inputs})", *aligned(list(_rows(graph, store.params))), *_bytes(compiled, store)])


def _rows(graph: Graph, params: Arrays) -> Iterator[tuple[str, ...]]:
    yield HEAD
    shown = {one.name: one for one in reversed(graph.traced.written)}  # a layer's first call
    owners = [_owner(name, shown) for name in params]
    sizes = {name: sum(a.size for a, own in zip(params.values(), owners, strict=True) if own == name) for name in shown}
    for name, one in reversed(shown.items()):
        yield dotted(name), one.kind, _types(one), spaced(sizes[name])
    rest = sum(array.size for array, own in zip(params.values(), owners, strict=True) if own is None)
    if rest:
        yield "of the model itself", "", "", spaced(rest)
    yield "total", "", "", spaced(sum(array.size for array in params.values()))


def _owner(parameter: str, layers: Iterable[str]) -> str | None:
    """The innermost layer to whose name a parameter belongs."""
    return max((name for name in layers if parameter.startswith(f"{name}/")), key=len, default=None)


def _types(one: WrittenLayer) -> str:
    first, more = str(one.outputs[0] or "?") if one.outputs else "", len(one.outputs) - 1
    return f"{first} and {more} more" if more > 0 else first


def _bytes(compiled: Mapping[str, Graph], store: ArrayStore) -> Iterator[str]:
    """Lines: the bytes held, and the peak of the passes of each function."""
    yield f"parameters {_size(store.params)}, optimizer {_size(store.held.state)}"
    for function, graph in compiled.items():
        planned = graph.planned()
        passes = ", ".join(f"{one.name} pass {readable(one.total)}" for one in planned.memory().passes)
        yield f"{function}: {passes}"
        if planned.budget is not None:
            yield f"{function}: {planned.budget()}"


def _size(arrays: Arrays) -> str:
    return readable(sum(array.nbytes for array in arrays.values()))


TRAINING = "train_one_batch"


class Model(Layer):
    """Base of all models: a layer that is called with arrays.

    A subclass makes its layers in `__init__` and writes `forward`. To be trained it also writes `train_one_batch`,
    which gives one blob to `self.minimize`. Python code in these methods runs when a net is written, for the first
    inputs of each shape. If values that it reads change, compile again. A subclass need not call `super().__init__()`.

    A call trains on a batch, or, after `eval()`, computes `forward`. It returns arrays in the structure in which the
    function returned blobs. In training they are computed with the parameters before the update.

    Args:
        args: arguments of the subclass.
        **kwargs: arguments of the subclass.

    Raises:
        ModelError: in a call before `compile`, with inputs that do not fit, or in training without an optimizer.
        TypeRuleError: in a call, for arrays whose shapes or dtypes do not fit the ops.

    Example:
        >>> class Line(ro.model.Model):
        ...     def __init__(self):
        ...         self.dense = ro.model.Dense(1)
        ...     def forward(self, x):
        ...         return self.dense(x)
        ...     def train_one_batch(self, x, y):
        ...         return self.minimize(ro.model.mean_squared_error(self.forward(x), y))
        >>> model = Line()
        >>> model.set_optimizer(ro.model.SGD(0.1))
        >>> x = np.array([[0.0], [1.0], [2.0]], "float32")
        >>> model = model.compile([x, 3 * x + 1], use_graph=False)
        >>> losses = [model(x, 3 * x + 1) for _ in range(100)]
        >>> model.eval()(x).round()
        array([[1.],
               [4.],
               [7.]], dtype=float32)
    """

    _attribute_meanings: ClassVar = {
        **dict.fromkeys(("parameters", "weights", "named_parameters", "get_weights"), "get_params"),
        **dict.fromkeys(("state_dict", "load_state_dict"), "get_states, set_states, save or load"),
        **dict.fromkeys(("fit", "step", "backward"), "a call, model(x, y), which trains on a batch"),
        **dict.fromkeys(("predict", "apply"), "eval, after which a call computes forward"),
        **dict.fromkeys(("to", "cuda"), "compile(..., device='cuda')"),
        "summary": "print(model)",
    }

    _store: ArrayStore
    _graphs: Graphs | None
    _compiled: dict[str, Graph]  # function -> graph for the inputs of `compile`
    _seed: int
    _trains: bool

    def __new__(cls, *args: Any, **kwargs: Any) -> Model:
        """Start empty, so that a subclass need not call `super().__init__()`."""
        model = super().__new__(cls)
        model._store, model._graphs, model._compiled = ArrayStore(cls.__name__), None, {}
        model._seed, model._trains = 0, True
        return model

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: they have the same arrays, and must be compiled again."""
        store = ArrayStore(self._store.model)
        store.held = self._store.held.at(HOST)
        return {**vars(self), "_graphs": None, "_compiled": {}, "_store": store}

    # -- what a subclass says ------------------------------------------------------------------------------------

    def train_one_batch(self, *inputs: Any, **named: Any) -> Any:
        """Write a step of training. A subclass computes blobs here, and gives one of them to `self.minimize`.

        Args:
            inputs: blobs, or lists, tuples and dicts of blobs.
            **named: further ones by name.

        Raises:
            ModelError: the subclass does not write it.
        """
        raise ModelError(
            f"{type(self).__name__} cannot be trained",
            hint="Write train_one_batch(self, x, ...), which gives the loss to self.minimize, or call model.eval().",
        )

    def minimize(self, loss: Blob) -> Blob:
        """Mark a blob of one number as the loss that training minimises, and return it. A net has only one loss.

        Args:
            loss: a float blob without dimensions.

        Raises:
            ModelError: it is not one float, or there is a loss already.
        """
        return minimize(loss)

    # -- before any data -----------------------------------------------------------------------------------------

    def set_optimizer(self, optimizer: Optimizer, freeze: Sequence[str] = ()) -> None:
        """Set the optimizer. Arrays of an earlier optimizer's state are kept if the new one has arrays of the same
        name.

        Args:
            optimizer: `SGD`, `Adam`, `AdamW`, or an object of a subclass of `Optimizer`.
            freeze: patterns of dotted names, such as `"encoder.*"`, of parameters that are not updated.

        Raises:
            ModelError: this is not an optimizer, or no parameter of a compiled model matches a pattern.
        """
        if not isinstance(optimizer, Optimizer):
            raise ModelError("this is not an optimizer", wanted="SGD, Adam or AdamW", came=type(optimizer).__name__)
        patterns = tuple(freeze) if isinstance(freeze, Sequence) and not isinstance(freeze, str) else (freeze,)
        if not all(isinstance(pattern, str) for pattern in patterns):
            raise ModelError("freeze= is not a list of patterns", wanted="strings", came=repr(freeze)[:80])
        self._store.set_optimizer(optimizer, patterns)

    @named_arguments
    def compile(
        self,
        inputs: Sequence[Any] | Mapping[str, Any],
        is_train: bool = True,
        use_graph: bool = True,
        sequential: bool = False,
        *,
        dtype: str = "float32",
        seed: int = 0,
        **options: Any,
    ) -> Model:
        """Build nets and parameters from the shapes of inputs. Parameters that the model already has stay.

        Args:
            inputs: placeholders, or arrays for their shapes. They are the arguments of `train_one_batch`, or, without
                `is_train`, of `forward`: a dict by name, or a list in order. If they do not fit this function, the
                other one is tried. None stands for an argument that is left out.
            is_train: whether a call trains; `train()` and `eval()` change it.
            use_graph: True: nets run as compiled kernels. False: op by op in the interpreter.
            sequential: ops run in the order in which they were written, and share no memory.
            dtype: dtype of floats, `"float32"` or `"float64"`.
            seed: seed of parameters, and of random ops in training.
            **options: further arguments of `rnnops.compile`: device, threads, checkpoints, memory_budget, precision,
                residuals.

        Returns:
            The model itself.

        Raises:
            ModelError: inputs do not fit, or dtype or seed is wrong. Errors of layers and of `rnnops.compile` are
            raised
                too.
            BudgetError: memory_budget is too small.
        """
        check_flags("compile", is_train=is_train, use_graph=use_graph, sequential=sequential)
        options = _options(use_graph, sequential, options)
        names = name_layers(self)
        graphs = Graphs(type(self).__name__, names, _float_dtype(dtype), options)
        before = self._store.held, self._seed
        self._seed = _checked_seed(seed)
        try:
            self._store.held = before[0].at(home_of(options["device"], type(self).__name__))
            functions = self._functions(inputs, is_train)
            compiled = {one.name: self._started(graphs, one, one.name == TRAINING) for one in functions}
            self._store.held.check_frozen(self._store.model)
            for graph in compiled.values():
                graph.planned()
        except BaseException:
            self._store.held, self._seed = before
            raise
        self._graphs, self._compiled, self._trains = graphs, compiled, is_train
        return self

    def _started(self, graphs: Graphs, arguments: Arguments, training: bool) -> Graph:
        """A graph, after its parameters are made. Parameters of a model inside start with the arrays that it holds."""
        graph = graphs.graph(arguments, training)
        self._store.start(graph.traced.net, self._seed, graphs.dtype, lambda: _arrays_inside(graphs.names))
        return graph

    def _functions(self, inputs: Sequence[Any] | Mapping[str, Any], is_train: bool) -> Iterator[Arguments]:
        """The function whose arguments the inputs are; and the other function, if it needs no other inputs."""
        if not isinstance(inputs, Mapping | list | tuple):
            wanted = "a list of placeholders, or a dict of them by name"
            raise ModelError("inputs are not a list", wanted=wanted, came=type(inputs).__name__)
        args, kwargs = ((), inputs) if isinstance(inputs, Mapping) else (tuple(inputs), {})
        can_train = type(self).train_one_batch is not Model.train_one_batch
        in_order = [self.train_one_batch, self.forward][:: 1 if is_train else -1] if can_train else [self.forward]
        first = next((one for one in in_order if takes(one, args, kwargs)), self.forward)
        yield (found := arguments_of(first, args, kwargs))
        other = found.given_to(self.forward) if first == self.train_one_batch else None
        if other is not None:
            yield other

    # -- calls ---------------------------------------------------------------------------------------------------

    def train(self, mode: bool = True) -> Model:
        """From now on a call is a step of training.

        Args:
            mode: False for `eval()`.

        Returns:
            The model itself.
        """
        check_flags("train", mode=mode)
        self._trains = bool(mode)
        return self

    def eval(self) -> Model:
        """From now on a call computes `forward`.

        Returns:
            The model itself.
        """
        return self.train(False)

    @property
    def is_training(self) -> bool:
        """While a net is written, True for a step of training. Otherwise, True if a call trains."""
        now = being_written()
        return self._trains if now is None else now.training

    @memory_named(lambda model: type(model).__name__)
    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Train on a batch, or compute `forward`. If inputs are blobs, append this model's ops to their net, as a
        layer.

        Args:
            inputs, named: arrays, as arguments of `train_one_batch` or `forward`.

        Returns:
            Arrays in the structure in which the function returned blobs. In training they are computed with the
            parameters before the update.

        Raises:
            ModelError: before `compile`, and for inputs that do not fit.
        """
        if being_written() is not None or blobs_of([inputs, named]):
            return super().__call__(*inputs, **named)
        arguments = arguments_of(self.train_one_batch if self._trains else self.forward, inputs, named)
        return self._train(arguments) if self._trains else self._evaluate(arguments)

    def run(self, function: Callable[..., Any], *inputs: Any, **named: Any) -> Any:
        """Compute a method of this model without training, such as `model.run(model.train_one_batch, x, labels)`.

        Args:
            function: takes and returns blobs, as `forward` does.
            inputs: arrays.
            **named: arrays by name.

        Returns:
            Arrays in the structure in which the function returned blobs.

        Raises:
            ModelError: before `compile`, for a method of another model, and for inputs that do not fit.
        """
        owner = getattr(function, "__self__", self)
        if isinstance(owner, Model) and owner is not self:
            raise ModelError("this is a method of another model", wanted=type(self).__name__, came=repr(function)[:80])
        return self._evaluate(arguments_of(function, inputs, named))

    def _evaluate(self, arguments: Arguments) -> Any:
        graph = self._started(self._require_compiled(), arguments, False)
        home, leaves = self._store.held.home, arguments.leaves()
        outputs = graph.run(self._store.of(graph.traced.net), home.fed(graph.traced.net.name, leaves))
        return graph.traced.results(home.given(outputs, leaves))

    def _train(self, arguments: Arguments) -> Any:
        graph = self._started(self._require_compiled(), arguments, True)
        if not graph.traced.has_loss:
            raise ModelError("train_one_batch minimises nothing", hint="Give a loss to self.minimize.")
        params, moved = self._store.of(graph.traced.net), set(self._store.held.trainable)
        home, leaves = self._store.held.home, arguments.leaves()
        seed = step_seed(self._seed, self.step_count) if graph.draws else None
        fed, wrt = home.fed(graph.traced.net.name, leaves), [name for name in params if name in moved]
        outputs, pullback = graph.run.vjp(params, fed, seed=seed, wrt=wrt)
        confirm = self._store.update(home.gradients(pullback, outputs[LOSS]))
        given = home.given(outputs, leaves)
        confirm()
        return graph.traced.results(given)

    def _require_compiled(self) -> Graphs:
        if self._graphs is None:
            hint = "Call compile with placeholders first."
            raise ModelError(f"{type(self).__name__} is not compiled", hint=hint)
        return self._graphs

    # -- what it holds -------------------------------------------------------------------------------------------

    @property
    def step_count(self) -> int:
        """How many steps of training there were."""
        return self._store.step_count

    @property
    def graphs(self) -> Mapping[str, Graph]:
        """The results of `compile`, by function: the net, and the run with its plans."""
        self._require_compiled()
        return dict(self._compiled)

    @property
    def arrays(self) -> Arrays:
        """All parameters by the names that they have in nets, read-only."""
        return read_only({name: on_host(array).view() for name, array in self._store.params.items()})

    def get_params(self) -> Arrays:
        """Copies of all parameters, by dotted names such as `encoder.layer_0.gates_t_w`."""
        return by_dotted_names(self._store.params)

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Replace some parameters.

        Args:
            params: arrays by dotted names. Parameters that are left out do not change.

        Raises:
            ModelError: before `compile`, or if one is unknown or has another type; nothing is changed then.
        """
        self._require_compiled()
        self._store.replace(params, ModelError, optimizer=False)

    def get_states(self) -> Arrays:
        """Copies of all arrays that training changes: parameters, and the optimizer's state as `optimizer.<...>`."""
        return self._store.everything()

    def set_states(self, states: Mapping[str, Any]) -> None:
        """Replace some of the arrays that `get_states` returns.

        Args:
            states: arrays by dotted names. Arrays that are left out do not change.

        Raises:
            ModelError: before `compile`, or if one is unknown or has another type; nothing is changed then.
        """
        self._require_compiled()
        self._store.replace(states, ModelError)

    @contextmanager
    def using_params(self, params: Mapping[str, Any]) -> Iterator[None]:
        """A context with other parameters, such as running averages. At its end all changes are undone, also those by
        training and loading.

        Args:
            params: arrays by dotted names. Parameters that are left out do not change.

        Raises:
            ModelError: as for `set_params`.
        """
        before = self._store.held
        self.set_params(params)
        try:
            yield
        finally:
            self._store.held = before.at(self._store.held.home)

    def save(self, path: str | PathLike[str], state: Mapping[str, Any] | None = None) -> None:
        """Write parameters, the optimizer's state and a state of your own. An old file is replaced as a whole or not at
        all.

        Args:
            path: path of a safetensors file.
            state: arrays and JSON values by name.

        Raises:
            SaveError: a value cannot be saved, or the file cannot be written.
            ModelError: before `compile`.
        """
        self._require_compiled()
        saving.save(path, self.get_states(), state or {})

    def load(self, path: str | PathLike[str], include_state: bool = True) -> dict[str, Any]:
        """Read a file of `save` into this model, which must be compiled.

        Args:
            path: path of the file.
            include_state: whether the optimizer's state is restored. Without it, the model may have another optimizer
                or none.

        Returns:
            Your own state, as arrays and JSON values by name.

        Raises:
            SaveError: the file is damaged, or arrays do not fit (a line for each of the first 12); nothing is changed
                then.
            ModelError: before `compile`.
        """
        check_flags("load", include_state=include_state)
        self._require_compiled()
        arrays, state = saving.load(path)
        if not include_state:
            arrays = {name: array for name, array in arrays.items() if not name.startswith(f"{OPTIMIZER}.")}
        self._store.replace(arrays, SaveError, complete=True, optimizer=include_state)
        return state

    def __str__(self) -> str:
        return summary(type(self).__name__, layers_in(self), self._compiled, self._store)


def step_seed(seed: int, step: int) -> int:
    """The seed of random ops in one step of training."""
    return int.from_bytes(hashlib.sha256(f"{seed} {step}".encode()).digest()[:8], "little")


def _arrays_inside(names: LayerNames) -> Arrays:
    """The arrays of models inside a model, by their names in it."""
    inner = [(layer, name) for layer, name in names.found.values() if isinstance(layer, Model) and name]
    return {f"{prefix}/{name}": array for model, prefix in inner for name, array in model._store.params.items()}


def _float_dtype(dtype: object) -> str:
    name = dtype_name(dtype)
    if name not in FLOATS[1:]:
        raise ModelError("no dtype of a model", wanted=" or ".join(FLOATS[1:]), came=name)
    return name


def _checked_seed(seed: object) -> int:
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or not 0 <= seed < 2**63:
        raise ModelError("not a seed", wanted="an integer from 0 to 2**63 - 1", came=repr(seed)[:80])
    return int(seed)


def _options(use_graph: bool, sequential: bool, options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `rnnops.compile`."""
    if not use_graph and options.get("device", "reference") != "reference":
        raise ModelError("without a graph ops run in the interpreter", wanted="no device=", came=options["device"])
    return {"device": "cpu" if use_graph else "reference", "recycle": not sequential, **options}
