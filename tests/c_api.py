"""Runs an export in TensorFlow's C library, the loader of TF Serving, without its Python.

    python tests/c_api.py FOLDER REQUESTS.npz ANSWERS.npz [--library=OPS.so]

answers requests whose arrays are named "PLACE/SIGNATURE/INPUT" by arrays named
"PLACE/SIGNATURE/OUTPUT", strings as NumPy bytes, and prints which modules of TensorFlow's Python
were loaded: [].
"""

import ctypes
import importlib.util
import json
import pathlib
import sys

import numpy as np

INVALID_ARGUMENT = 3
_STRING = 7
_STRING_SIZE = 24  # of a TF_TString
_DTYPES = {1: np.float32, 3: np.int32, 9: np.int64, 10: np.bool_, 19: np.float16}
_NUMBERS = {np.dtype(dtype): number for number, dtype in _DTYPES.items()}

_POINTER, _INT, _SIZE, _TEXT = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_char_p
_LONG = ctypes.c_int64


class _Output(ctypes.Structure):
    _fields_ = [("operation", _POINTER), ("index", _INT)]


_FUNCTIONS = {  # name: (what it returns, what it takes)
    "TF_NewStatus": (_POINTER, []),
    "TF_DeleteStatus": (None, [_POINTER]),
    "TF_GetCode": (_INT, [_POINTER]),
    "TF_Message": (_TEXT, [_POINTER]),
    "TF_NewGraph": (_POINTER, []),
    "TF_DeleteGraph": (None, [_POINTER]),
    "TF_GraphOperationByName": (_POINTER, [_POINTER, _TEXT]),
    "TF_NewSessionOptions": (_POINTER, []),
    "TF_DeleteSessionOptions": (None, [_POINTER]),
    "TF_LoadSessionFromSavedModel": (
        _POINTER,
        [_POINTER, _POINTER, _TEXT, ctypes.POINTER(_TEXT), _INT, _POINTER, _POINTER, _POINTER],
    ),
    "TF_SessionRun": (
        None,
        [_POINTER, _POINTER]
        + [ctypes.POINTER(_Output), ctypes.POINTER(_POINTER), _INT] * 2
        + [_POINTER, _INT, _POINTER, _POINTER],
    ),
    "TF_CloseSession": (None, [_POINTER, _POINTER]),
    "TF_DeleteSession": (None, [_POINTER, _POINTER]),
    "TF_LoadLibrary": (_POINTER, [_TEXT, _POINTER]),
    "TF_AllocateTensor": (_POINTER, [_INT, ctypes.POINTER(_LONG), _INT, _SIZE]),
    "TF_DeleteTensor": (None, [_POINTER]),
    "TF_TensorType": (_INT, [_POINTER]),
    "TF_NumDims": (_INT, [_POINTER]),
    "TF_Dim": (_LONG, [_POINTER, _INT]),
    "TF_TensorByteSize": (_SIZE, [_POINTER]),
    "TF_TensorData": (_POINTER, [_POINTER]),
    "TF_StringInit": (None, [_POINTER]),
    "TF_StringCopy": (None, [_POINTER, _TEXT, _SIZE]),
    "TF_StringGetDataPointer": (_POINTER, [_POINTER]),
    "TF_StringGetSize": (_SIZE, [_POINTER]),
    "TF_StringDealloc": (None, [_POINTER]),
}


class Error(Exception):
    """Error of the C library; `code` is that of absl and gRPC, 3 for an invalid argument."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def package_file(package, name):
    """Returns the path of a file in a package, without importing the package."""
    folder = importlib.util.find_spec(package).submodule_search_locations[0]
    return str(pathlib.Path(folder) / name)


def text_ops():
    """Returns the path of the library with the ops of SentencePiece models."""
    return package_file("tensorflow_text", "python/ops/_sentencepiece_tokenizer.so")


def load_library(path):
    """Registers the ops of a library in this process."""
    with _Status() as status:
        _library().TF_LoadLibrary(str(path).encode(), status)


class Session:
    """A loaded export; thread-safe.

    Args:
      folder: of one version, with saved_model.pb and assets.extra/model.json.

    Attributes:
      description: the contents of model.json.
    """

    def __init__(self, folder):
        folder = pathlib.Path(folder)
        self.description = json.loads((folder / "assets.extra" / "model.json").read_text("utf-8"))
        self._tf = _library()
        self._graph = self._tf.TF_NewGraph()
        self._session = None
        options = self._tf.TF_NewSessionOptions()
        try:
            with _Status() as status:
                self._session = self._tf.TF_LoadSessionFromSavedModel(
                    options,
                    None,
                    str(folder).encode(),
                    (_TEXT * 1)(b"serve"),
                    1,
                    self._graph,
                    None,
                    status,
                )
        except Error:
            self.close()
            raise
        finally:
            self._tf.TF_DeleteSessionOptions(options)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Frees the model."""
        if self._session:
            for end in (self._tf.TF_CloseSession, self._tf.TF_DeleteSession):
                with _Status() as status:
                    end(self._session, status)
        if self._graph:
            self._tf.TF_DeleteGraph(self._graph)
        self._session = self._graph = None

    def run(self, signature, **inputs):
        """Returns the outputs of a signature by name; strings are bytes of dtype object.

        An array is sent with the dtype that it has.

        Raises:
          Error: the signature or an input is not known, or TensorFlow refuses.
        """
        described = self._signature(signature, inputs)
        with _Tensors(self._tf) as fed, _Tensors(self._tf) as found:
            for value in inputs.values():
                fed.add(value)
            found.reserve(len(described["outputs"]))
            with _Status() as status:
                self._tf.TF_SessionRun(
                    self._session,
                    None,
                    *(self._places(described["inputs"][name] for name in inputs), fed.array()),
                    len(inputs),
                    *(self._places(described["outputs"].values()), found.array()),
                    len(described["outputs"]),
                    *(None, 0, None, status),
                )
                found.take()
            return dict(zip(described["outputs"], found.values(), strict=True))

    def _signature(self, name, inputs):
        described = self.description["signatures"].get(name)
        if described is None:
            message = f'Serving signature name: "{name}" not found in signature def'
            raise Error(INVALID_ARGUMENT, message)
        if inputs.keys() != described["inputs"].keys():
            expected, got = sorted(described["inputs"]), sorted(inputs)
            raise Error(INVALID_ARGUMENT, f"inputs must be {expected}, got {got}")
        return described

    def _places(self, infos):
        """Returns graph tensors by names such as "step_input_ids:0"."""
        places = []
        for info in infos:
            operation, _, index = info["tensor"].partition(":")
            found = self._tf.TF_GraphOperationByName(self._graph, operation.encode())
            if not found:
                raise Error(5, f"model.json names {info['tensor']}, which the graph lacks")
            places.append(_Output(found, int(index or 0)))
        return (_Output * len(places))(*places)


class _Status:
    """Status of a call; raises at the end of the block if the call failed."""

    def __enter__(self):
        self._status = _library().TF_NewStatus()
        return self._status

    def __exit__(self, kind, *_):
        tf = _library()
        code, message = tf.TF_GetCode(self._status), tf.TF_Message(self._status)
        tf.TF_DeleteStatus(self._status)
        if code and kind is None:
            raise Error(code, message.decode("utf-8", "replace"))


class _Tensors:
    """Tensors that are freed at the end, including those created by the library."""

    def __init__(self, tf):
        self._tf = tf
        self._tensors = []
        self._strings = []  # those in the tensors made here, which do not free them

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.take()
        for string in self._strings:
            self._tf.TF_StringDealloc(string)
        for tensor in self._tensors:
            if tensor:
                self._tf.TF_DeleteTensor(tensor)

    def reserve(self, count):
        """Reserves slots for tensors that the library will create."""
        self._tensors = [None] * count

    def array(self):
        """Returns the tensors, or the slots for them, as a C array."""
        self._array = (_POINTER * len(self._tensors))(*self._tensors)
        return self._array

    def take(self):
        """Takes ownership of the tensors that the library put into the array."""
        if hasattr(self, "_array"):
            self._tensors = list(self._array)

    def add(self, value):
        value = np.asarray(value)
        if value.dtype.kind in "OSU":
            self._tensors.append(self._strings_of(value))
        elif value.dtype in _NUMBERS:
            value = np.ascontiguousarray(value)
            tensor = self._allocate(_NUMBERS[value.dtype], value.shape, value.nbytes)
            ctypes.memmove(self._tf.TF_TensorData(tensor), value.ctypes.data, value.nbytes)
            self._tensors.append(tensor)
        else:
            raise Error(INVALID_ARGUMENT, f"no tensors of dtype {value.dtype}")

    def _allocate(self, number, shape, size):
        return self._tf.TF_AllocateTensor(number, (_LONG * len(shape))(*shape), len(shape), size)

    def _strings_of(self, value):
        tensor = self._allocate(_STRING, value.shape, value.size * _STRING_SIZE)
        start = self._tf.TF_TensorData(tensor) or 0
        for i, content in enumerate(value.reshape(-1).tolist()):
            content = content.encode() if isinstance(content, str) else content
            string = start + i * _STRING_SIZE
            self._tf.TF_StringInit(string)
            self._tf.TF_StringCopy(string, content, len(content))
            self._strings.append(string)
        return tensor

    def values(self):
        return [self._value(tensor) for tensor in self._tensors]

    def _value(self, tensor):
        tf = self._tf
        shape = [tf.TF_Dim(tensor, i) for i in range(tf.TF_NumDims(tensor))]
        start, number = tf.TF_TensorData(tensor) or 0, tf.TF_TensorType(tensor)
        if number == _STRING:
            strings = range(start, start + int(np.prod(shape)) * _STRING_SIZE, _STRING_SIZE)
            value = np.empty(len(strings), object)
            value[:] = [self._content(string) for string in strings]
            return value.reshape(shape)
        data = ctypes.string_at(start, tf.TF_TensorByteSize(tensor))
        return np.frombuffer(data, _DTYPES[number]).reshape(shape).copy()

    def _content(self, string):
        pointer = self._tf.TF_StringGetDataPointer(string)
        return ctypes.string_at(pointer, self._tf.TF_StringGetSize(string))


_loaded = []


def _library():
    """Returns the C library, with the types of its functions."""
    if not _loaded:
        ctypes.CDLL(package_file("tensorflow", "libtensorflow_framework.so.2"), ctypes.RTLD_GLOBAL)
        library = ctypes.CDLL(package_file("tensorflow", "libtensorflow_cc.so.2"))
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        _loaded.append(library)
    return _loaded[0]


def _main(folder, requests, answers, *options):
    for option in options:
        load_library(option.removeprefix("--library="))
    grouped = {}
    with np.load(requests) as arrays:
        for path, value in arrays.items():
            place, signature, name = path.split("/")
            grouped.setdefault((place, signature), {})[name] = value
    found = {}
    with Session(folder) as session:
        for (place, signature), inputs in grouped.items():
            for name, value in session.run(signature, **inputs).items():
                value = value.astype(bytes) if value.dtype == object else value
                found[f"{place}/{signature}/{name}"] = value
    np.savez(answers, **found)
    heavy = ("tensorflow", "tensorflow_text", "keras", "txl_tf")
    print(json.dumps(sorted(name for name in sys.modules if name.partition(".")[0] in heavy)))


if __name__ == "__main__":
    _main(*sys.argv[1:])
