"""Seeded mutations of model files: damaged bytes, and forged content whose checksum is right."""

import json
import random
import struct

import safetensors.torch
import torch

from halfseen.base.model_file import DIGEST, KEY, _digest

ODD_VALUES = (
    None, True, False, 0, -1, 1, 2, 60_000, 10**9, 10**18, 10**400, -(10**9), 0.5, 1e308, float("nan"),
    float("inf"), "", "x", "nan", "\u202e", [], {}, [None], [[]], {"items": 3}, [10**9] * 3, "a" * 5000,
)  # fmt: skip
ODD_TYPES = (
    torch.float16, torch.bfloat16, torch.float32, torch.int8, torch.int64, torch.bool, torch.complex64,
    torch.float8_e4m3fn,
)  # fmt: skip


def read(content):
    """Returns the manifest and the tensors of a model file."""
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + size])
    return json.loads(header["__metadata__"][KEY]), safetensors.torch.load(content)


def sign(manifest, tensors):
    """Returns a model file with a checksum that is right."""
    text = manifest if isinstance(manifest, str) else json.dumps(manifest)
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    return safetensors.torch.save(tensors, {KEY: text, DIGEST: _digest(text, tensors)})


def corrupt(content, seed):
    """Returns another content, and what was done to it."""
    choose = random.Random(seed)
    name = choose.choice(sorted(MUTATIONS))
    return MUTATIONS[name](content, choose), name


def _truncate(content, choose):
    return content[: choose.randrange(len(content))]


def _flip(content, choose):
    damaged = bytearray(content)
    for _ in range(choose.choice((1, 1, 8, 64))):
        damaged[choose.randrange(len(damaged))] ^= 1 << choose.randrange(8)
    return bytes(damaged)


def _splice(content, choose):
    start, stop = sorted(choose.randrange(len(content)) for _ in range(2))
    return content[:start] + choose.randbytes(choose.randrange(200)) + content[stop:]


def _declare_size(content, choose):
    return struct.pack("<Q", choose.choice((0, 1, 2**16, 2**31, 2**40, 2**63, 2**64 - 1))) + content[8:]


def _declare_shape(content, choose):
    """Lets the header declare other shapes, types and places of tensors."""
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + size])
    entry = header[choose.choice([name for name in header if name != "__metadata__"])]
    key, value = choose.choice(
        [
            ("shape", [2**31, 2**31]), ("shape", [10**9]), ("shape", []), ("shape", [-1]), ("dtype", "F16"),
            ("data_offsets", [0, 2**60]), ("data_offsets", [8, 0]), ("dtype", "I64"), ("shape", "x"),
        ]
    )  # fmt: skip
    entry[key] = value
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content[8 + size :]


def _places(node, path=()):
    """Yields the path of every value in the manifest."""
    yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield from _places(value, (*path, key))


def _change_values(content, choose):
    manifest, tensors = read(content)
    for _ in range(choose.choice((1, 1, 1, 3))):
        path = choose.choice([place for place in _places(manifest) if place])
        node = manifest
        for key in path[:-1]:
            node = node[key]
        action = choose.random()
        if action < 0.15:
            del node[path[-1]]
        elif action < 0.25 and isinstance(node, dict):
            node["extra"] = choose.choice(ODD_VALUES)
        else:
            node[path[-1]] = choose.choice(ODD_VALUES)
    return sign(manifest, tensors)


def _change_sizes(content, choose):
    """Asks for enormous networks."""
    manifest, tensors = read(content)
    sized = ("width", "n_latent", "n_components", "n_blocks", "n_networks", "image_shape", "n_features_in_")
    places = [place for place in _places(manifest) if place and place[-1] in sized]
    for path in choose.sample(places, choose.randint(1, len(places))) if places else ():
        node = manifest
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = choose.choice((60_000, 10**7, 10**12, [1, 10**6, 10**6]))
    return sign(manifest, tensors)


def _nest(content, choose):
    depth = choose.choice((50, 900, 5_000, 100_000))
    manifest, tensors = read(content)
    mark = "@nested@"
    manifest[choose.choice(sorted(manifest))] = mark
    return sign(json.dumps(manifest).replace(f'"{mark}"', "[" * depth + "]" * depth), tensors)


def _change_tensors(content, choose):
    manifest, tensors = read(content)
    name = choose.choice(sorted(tensors))
    tensor = tensors[name]
    action = choose.randrange(7)
    if action == 0:
        del tensors[name]
    elif action == 1:
        other = choose.choice(sorted(tensors))
        tensors[name], tensors[other] = tensors[other], tensor.clone()
    elif action == 2:
        tensors[name] = tensor.to(choose.choice(ODD_TYPES))
    elif action == 3 and tensor.is_floating_point() and tensor.numel():
        tensor.view(-1)[choose.randrange(tensor.numel())] = choose.choice((torch.nan, torch.inf))
    elif action == 4:
        tensors[name] = tensor[..., None].expand(*tensor.shape, 7).clone()
    elif action == 5 and tensor.numel() and tensor.dtype != torch.bool:
        tensor.view(-1)[choose.randrange(tensor.numel())] = choose.choice((-1, 10**6))
    else:
        tensors[name] = tensor.flatten()[: choose.randrange(tensor.numel() + 1)].clone()
    return sign(manifest, tensors)


MUTATIONS = {
    "truncated": _truncate, "flipped": _flip, "spliced": _splice, "other header size": _declare_size,
    "other declared tensor": _declare_shape, "other values": _change_values, "other sizes": _change_sizes,
    "deep nesting": _nest, "other tensors": _change_tensors,
}  # fmt: skip
