"""Convolutional networks: sizes, the laws of their layers, and a mask model of images against loops."""

import numpy as np
import pytest
import torch
from scipy import signal
from tolerances import EXACT

from halfseen.latent.convolutional import ConvDecoder, ConvEncoder, PixelMask

SHAPES = [(1, 28, 28), (1, 32, 32), (3, 32, 32), (1, 17, 23), (2, 8, 9)]


def fresh(network, seed=0):
    network = network.double()
    network.reset_parameters(torch.Generator().manual_seed(seed))
    return network


def rows(generator, *shape):
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("normalisation", ["group", "batch"])
def test_codes_and_images_have_their_sizes_and_reach_every_parameter(generator, shape, normalisation):
    n_features = int(np.prod(shape))
    encoder = fresh(ConvEncoder(shape, 5, widths=(4, 8, 8, 8), normalisation=normalisation))
    decoder = fresh(ConvDecoder(5, shape, widths=(8, 8, 4, 4), n_parameters=2, normalisation=normalisation))
    code = encoder(rows(generator, 2, 3, 2 * n_features))
    image = decoder(code)
    assert code.shape == (2, 3, 5)
    assert image.shape == (2, 3, 2 * n_features)
    (image * rows(generator, *image.shape)).sum().backward()
    for network in (encoder, decoder):
        for name, parameter in network.named_parameters():
            assert parameter.grad.abs().sum() > 0, name


def test_the_default_stages_are_those_of_28_by_28():
    encoder, decoder = ConvEncoder((1, 28, 28), 5), ConvDecoder(5, (1, 28, 28))
    sides = []
    for block in encoder.blocks:
        block.register_forward_hook(lambda *args: sides.append(tuple(args[-1].shape[1:3])))
    for block in decoder.blocks:
        block.register_forward_hook(lambda *args: sides.append(tuple(args[-1].shape[1:3])))
    with torch.no_grad():
        decoder(encoder(torch.zeros(1, 2 * 784)))
    down = [(32, 28), (32, 28), (64, 14), (64, 14), (128, 7), (128, 7), (256, 4), (256, 4)]
    up = [(128, 4), (128, 7), (64, 7), (64, 14), (32, 14), (32, 28), (32, 28), (32, 28)]
    assert sides == down + up
    assert decoder.start == (256, 4, 4)


def test_with_the_residual_convolutions_at_zero_the_encoder_is_its_short_cuts(generator):
    encoder = fresh(ConvEncoder((1, 9, 9), 4, widths=(6,)))
    with torch.no_grad():
        for block in encoder.blocks:
            block.outer_norm.weight.zero_()
    x = rows(generator, 3, 2 * 81)
    maps = torch.relu(encoder.first_norm(encoder.first(x.reshape(3, 2, 9, 9))))
    torch.testing.assert_close(encoder(x), encoder.output(maps.mean((2, 3))), rtol=0, atol=EXACT)


def test_features_are_planes_in_order_and_the_mask_follows_them(generator):
    encoder = fresh(ConvEncoder((2, 8, 8), 3, widths=(4,)))
    x = rows(generator, 2, 4 * 64)
    planes = []
    encoder.first.register_forward_hook(lambda layer, args, out: planes.append(args[0]))
    encoder(x)
    for plane in range(4):
        assert torch.equal(planes[0][:, plane].reshape(2, 64), x[:, plane * 64 : (plane + 1) * 64])


def test_parameters_of_pixels_come_one_kind_after_the_other(generator):
    decoder = fresh(ConvDecoder(3, (2, 8, 9), widths=(8, 4), n_parameters=2))
    with torch.no_grad():
        decoder.output.weight.zero_()
        decoder.output.bias.copy_(torch.arange(4.0))
    values = decoder(rows(generator, 3)).reshape(4, 72)
    assert torch.equal(values, torch.arange(4.0).double().unsqueeze(-1).expand(4, 72))


def test_an_encoder_with_group_normalisation_treats_rows_alone(generator):
    encoder, decoder = (
        fresh(ConvEncoder((1, 9, 8), 4, widths=(4, 8))),
        fresh(ConvDecoder(4, (1, 9, 8), (8, 4))),
    )
    x = rows(generator, 5, 2 * 72)
    torch.testing.assert_close(encoder(x)[2:3], encoder(x[2:3]), rtol=0, atol=EXACT)
    code = encoder(x)
    torch.testing.assert_close(decoder(code)[2:3], decoder(code[2:3]), rtol=0, atol=EXACT)


def test_batch_normalisation_uses_the_batch_in_training_and_not_after(generator):
    encoder = fresh(ConvEncoder((1, 9, 8), 4, widths=(4, 8), normalisation="batch"))
    x = rows(generator, 5, 2 * 72)
    assert (encoder(x)[:2] - encoder(x[:2])).abs().max() > 1e-6
    encoder.eval()
    torch.testing.assert_close(encoder(x)[:2], encoder(x[:2]), rtol=0, atol=EXACT)
    encoder.reset_parameters(generator)
    assert encoder.first_norm.running_mean.abs().max() == 0


def test_a_single_pixel_of_few_maps_still_carries_a_signal(generator):
    encoder = fresh(ConvEncoder((1, 8, 8), 4, widths=(4, 4, 4, 4)))
    codes = encoder(rows(generator, 6, 128))
    assert codes.std(dim=0).min() > 1e-3


def test_gradients_agree_with_finite_differences(generator):
    decoder = fresh(ConvDecoder(2, (1, 8, 8), widths=(4, 4)))
    assert torch.autograd.gradcheck(decoder, rows(generator, 2, 2).requires_grad_())


@pytest.mark.parametrize(
    "build",
    [
        lambda dropout: ConvEncoder((1, 8, 8), 4, widths=(8,), dropout=dropout),
        lambda dropout: ConvDecoder(128, (1, 8, 8), widths=(8,), dropout=dropout),
    ],
)
def test_dropout_needs_a_generator_and_acts_in_training_only(generator, build):
    network, x = fresh(build(0.5)), rows(generator, 3, 128)
    with pytest.raises(ValueError, match="needs a generator"):
        network(x)
    first, second, other = (network(x, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    plain = fresh(build(0.0))
    assert torch.equal(network.eval()(x), plain(x))


def test_dropout_leaves_out_whole_maps(generator):
    network = fresh(ConvEncoder((1, 8, 8), 4, widths=(8,), dropout=0.5))
    block = network.blocks[0]
    maps = rows(generator, 4, 8, 8, 8).abs()
    kept = block(maps, generator)
    full = block.eval()(maps, None)
    alone = torch.relu(maps)  # the short cut
    is_dropped = (kept == alone).flatten(2).all(-1)
    assert 0 < int(is_dropped.sum()) < 32
    changed = (kept != alone).flatten(2).any(-1)
    assert torch.equal(is_dropped, ~changed)
    assert not torch.equal(kept, full)


def test_parameters_follow_the_generator_and_nothing_else():
    a, b, c = (fresh(ConvDecoder(3, (1, 8, 8), widths=(8, 4)), seed) for seed in (1, 1, 2))
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
    assert not torch.equal(a.output.weight, c.output.weight)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shape": (1, 7, 28)}, r"sides of at least 8, got \(1, 7, 28\)"),
        ({"widths": ()}, "widths must be positive"),
        ({"normalisation": "layer"}, "'batch' or 'group', got 'layer'"),
        ({"dropout": -0.1}, "dropout must be at least 0"),
        ({"patch": 0}, "patch and n_blocks must be at least 1, got 0 and 2"),
        ({"n_blocks": 0}, "patch and n_blocks must be at least 1, got 1 and 0"),
    ],
)
def test_impossible_networks_are_refused(options, message):
    options = {"shape": (1, 28, 28), **options}
    with pytest.raises(ValueError, match=message):
        ConvEncoder(n_outputs=3, **options)
    with pytest.raises(ValueError, match=message):
        ConvDecoder(n_inputs=3, **options)


@pytest.mark.parametrize("shape", [(1, 28, 28), (2, 9, 11)])
@pytest.mark.parametrize("pooled", [True, False])
def test_networks_of_patches_have_their_sizes_and_reach_every_parameter(generator, shape, pooled):
    n_features = int(np.prod(shape))
    body = {"patch": 4, "n_blocks": 1}
    encoder = fresh(ConvEncoder(shape, 5, widths=(8, 8), pooled=pooled, **body))
    decoder = fresh(ConvDecoder(5, shape, widths=(8, 8), n_parameters=2, position_bias=True, **body))
    image = decoder(encoder(rows(generator, 3, 2 * n_features)))
    assert image.shape == (3, 2 * n_features)
    assert (len(encoder.blocks), len(decoder.blocks)) == (2, 2)
    (image * rows(generator, *image.shape)).sum().backward()
    for network in (encoder, decoder):
        for name, parameter in network.named_parameters():
            assert parameter.grad.abs().sum() > 0, name


def test_the_first_layer_of_patches_reads_each_square_once(generator):
    encoder = fresh(ConvEncoder((1, 8, 10), 3, widths=(4,), patch=4))
    found = []
    encoder.first.register_forward_hook(lambda layer, args, out: found.append(out))
    x = rows(generator, 1, 160)
    encoder(x)
    planes = torch.zeros(2, 8, 12, dtype=torch.float64)  # zeros beyond the edge
    planes[..., :10] = x.reshape(2, 8, 10)
    squares = [[planes[:, 4 * i : 4 * i + 4, 4 * j : 4 * j + 4] for j in range(3)] for i in range(2)]
    expected = torch.stack(
        [torch.stack([(encoder.first.weight * s).sum((1, 2, 3)) for s in line], dim=-1) for line in squares],
        dim=-2,
    )
    torch.testing.assert_close(found[0][0], expected, rtol=0, atol=EXACT)


def test_the_last_layer_of_patches_writes_each_square_at_its_place(generator):
    decoder = fresh(ConvDecoder(3, (2, 8, 10), widths=(4,), n_parameters=2, patch=4))
    found = []
    decoder.output.register_forward_hook(lambda layer, args, out: found.append(out))
    image = decoder(rows(generator, 1, 3)).reshape(2, 2, 8, 10)  # parameters, channels
    maps = found[0][0].reshape(2, 2, 4, 4, 2, 3)  # and rows and columns within a square, and of squares
    for h in range(8):
        for w in range(10):
            assert torch.equal(image[..., h, w], maps[:, :, h % 4, w % 4, h // 4, w // 4])


def test_without_pooling_every_position_has_weights_of_its_own(generator):
    x = rows(generator, 1, 2, 8, 8)
    moved = x.flip(-1)
    answers = {}
    for pooled in (True, False):
        encoder = fresh(ConvEncoder((1, 8, 8), 3, widths=(4,), pooled=pooled))
        with torch.no_grad():
            for layer in encoder.modules():  # filters that are the same from left and right
                if isinstance(layer, torch.nn.Conv2d):
                    layer.weight.copy_((layer.weight + layer.weight.flip(-1)) / 2)
        answers[pooled] = [encoder(image.reshape(1, -1)) for image in (x, moved)]
    torch.testing.assert_close(*answers[True], rtol=0, atol=EXACT)
    assert (answers[False][0] - answers[False][1]).abs().max() > 1e-3


def test_a_bias_of_positions_is_added_to_the_parameters_of_every_pixel(generator):
    decoder = fresh(ConvDecoder(3, (1, 8, 8), widths=(4,), n_parameters=2, position_bias=True))
    code, bias = rows(generator, 2, 3), rows(generator, 128)
    before = decoder(code)
    with torch.no_grad():
        decoder.bias.copy_(bias)
    torch.testing.assert_close(decoder(code), before + bias, rtol=0, atol=EXACT)
    decoder.reset_parameters(generator)
    assert not decoder.bias.any()


# ------------------------------------------------------------------------------------- masks of images


def pixel_mask(generator, **options):
    model = PixelMask(**{"shape": (2, 5, 4), **options}).double()
    model.reset_parameters(generator, torch.full((model.n_columns,), 0.5))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(generator=generator)
    return model


def correlate(weight, planes):
    """Plane by plane, with zeros beyond the edge."""
    return sum(signal.correlate2d(plane, w, mode="same") for plane, w in zip(planes, weight, strict=True))


@pytest.mark.parametrize("hidden", [0, 3])
def test_the_log_odds_of_a_pixel_are_a_bias_and_a_filter(generator, hidden):
    model = pixel_mask(generator, kernel_size=3, hidden=hidden)
    x = rows(generator, 40)
    planes = x.reshape(2, 5, 4).numpy()
    maps = np.stack([correlate(w, planes) for w in model.filter.weight.detach().numpy()])
    if hidden:
        maps = np.tanh(maps + model.filter.bias.detach().numpy()[:, None, None])
        maps = np.einsum("oh,hij->oij", model.mix.weight.detach().numpy()[:, :, 0, 0], maps)
    expected = maps.ravel() + model.bias.detach().numpy()
    assert len(expected) == 40
    np.testing.assert_allclose(model.logits(x).detach().numpy(), expected, rtol=0, atol=EXACT)


@pytest.mark.parametrize("hidden", [0, 3])
def test_a_kernel_of_one_pixel_on_one_channel_is_self_masking(generator, hidden):
    model = pixel_mask(generator, shape=(1, 3, 2), hidden=hidden)
    assert model.is_self_masking
    x = rows(generator, 6).requires_grad_()
    jacobian = torch.autograd.functional.jacobian(model.column_logits, x)
    assert (jacobian - jacobian.diag().diag()).abs().max() == 0
    assert jacobian.diag().abs().min() > 0
    if hidden == 0:  # one slope
        torch.testing.assert_close(jacobian.diag(), jacobian[0, 0].expand(6), rtol=0, atol=EXACT)


@pytest.mark.parametrize("options", [{"kernel_size": 3, "shape": (1, 3, 3)}, {"kernel_size": 1}])
def test_filters_over_neighbours_or_channels_are_not_self_masking(generator, options):
    model = pixel_mask(generator, **options)
    assert not model.is_self_masking
    with pytest.raises(TypeError, match="PixelMask is not self-masking"):
        model.column_logits(torch.zeros(model.n_features))


@pytest.mark.parametrize("hidden", [0, 3])
def test_masks_of_images_start_at_their_rates(generator, hidden):
    model = PixelMask((1, 4, 4), kernel_size=3, hidden=hidden).double()
    rate = torch.linspace(0.1, 0.9, 16, dtype=torch.float64)
    model.reset_parameters(generator, rate)
    at_zero = model.logits(torch.zeros(2, 3, 16, dtype=torch.float64)).sigmoid()
    torch.testing.assert_close(at_zero, rate.expand(2, 3, 16), rtol=0, atol=EXACT)
    spread = model.logits(rows(generator, 100, 16)).sigmoid() - rate
    assert 0 < spread.abs().max() < 0.2


def test_a_kernel_without_a_middle_is_refused():
    with pytest.raises(ValueError, match="odd and positive, got 2"):
        PixelMask((1, 8, 8), kernel_size=2)
