"""Forged model files: numbers of the description, or of a tensor, are changed and the checksum is right."""

import copy
import random

import torch
from hostile.corruption import read, sign

ODD_NUMBERS = (
    -1, 0, 1.5, 10**7, 10**9, 2**63, 1e300, -1e300, float("nan"), float("inf"), "7", None, True, [], {},
)  # fmt: skip
ODD_ELEMENTS = {
    "float": (1e300, -1e300, 1e30, -1.0, 0.0),
    "integer": (10**7, -1, 2**62, 0),
}
LONGEST = 6  # of a list, the first entries are forged
UNUSED = ("versions", "history_", "objective_", "reading_")  # records that no answer depends on


def number_places(node, path=()):
    """Yields the path of every number in a description; of long lists, those of the first entries."""
    if path and path[-1] in UNUSED:
        return
    if isinstance(node, int | float):
        yield path
    elif isinstance(node, dict):
        for key, value in node.items():
            yield from number_places(value, (*path, key))
    elif isinstance(node, list):
        for i, value in enumerate(node[:LONGEST]):
            yield from number_places(value, (*path, i))


def forgeries(content, seed, n_numbers, n_elements):
    """Yields forged contents, and what was forged in each."""
    choose = random.Random(seed)
    manifest, tensors = read(content)
    places = list(number_places(manifest))
    for _ in range(n_numbers):
        path, value = choose.choice(places), choose.choice(ODD_NUMBERS)
        forged = copy.deepcopy(manifest)
        node = forged
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = value
        yield sign(forged, tensors), f"{'.'.join(map(str, path))} = {value!r}"
    filled = sorted(name for name in tensors if tensors[name].numel() and tensors[name].dtype != torch.bool)
    for _ in range(n_elements if filled else 0):
        name = choose.choice(filled)
        forged = tensors[name].clone()
        value = choose.choice(ODD_ELEMENTS["float" if forged.is_floating_point() else "integer"])
        limit = torch.finfo(forged.dtype).max if forged.is_floating_point() else torch.iinfo(forged.dtype).max
        value = max(-limit, min(limit, value))
        everywhere = choose.random() < 0.3
        if everywhere:
            forged.fill_(value)
        else:
            forged.view(-1)[choose.randrange(forged.numel())] = value
        yield sign(manifest, {**tensors, name: forged}), f"{name}{'[:]' if everywhere else '[i]'} = {value!r}"
