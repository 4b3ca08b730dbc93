r"""An encoder that reads a row as the set of its observed features."""

import torch
from torch import Tensor, nn

from halfseen._random import torch_generator
from halfseen.nn.residual import ResidualMLP, empty_linear, reset_layers


class SetEncoder(nn.Module):
    r"""Creates an encoder that sums codes of the observed features, so that missing cells have no influence.

    .. math:: f(x_o) = g\Big(\sum_{j \in o} \operatorname{relu}(U e_j + w x_j + b)\Big)

    where :math:`e_j` is the learned embedding of feature :math:`j` and :math:`U, w, b` are shared, so that
    the output is invariant to a permutation of the features together with their embeddings.

    Parameters
    ----------
    n_features : int
        The number of features :math:`D`.
    network : ResidualMLP
        The network :math:`g`, from `code_size` inputs to the outputs.
    embedding_size : int
        The size of the embeddings :math:`e_j`.
    code_size : int
        The size of the codes; that of `network`'s inputs.

    Notes
    -----
    Shapes: from :math:`(*, 2D)`, as `encoder_input` returns it, to the outputs of `network`; values of
    missing cells are never read.

    References
    ----------
    Ma et al. (2019), EDDI: efficient dynamic discovery of high-value information with partial VAE, section
    3.2 (the pointnet encoder); Ipsen, Mattei & Frellsen (2021), not-MIWAE, for recommendation.

    Examples
    --------
    >>> encoder = SetEncoder(3, ResidualMLP(20, 2))
    >>> seen = torch.tensor([1.0, 0.0, 1.0])
    >>> one, two = torch.tensor([0.5, 0.0, 2.0]), torch.tensor([0.5, 9.0, 2.0])
    >>> torch.equal(encoder(torch.cat([one, seen])), encoder(torch.cat([two, seen])))
    True
    """

    def __init__(
        self, n_features: int, network: ResidualMLP, *, embedding_size: int = 20, code_size: int = 20
    ) -> None:
        super().__init__()
        if network.n_inputs != code_size:
            raise ValueError(f"network must have code_size = {code_size} inputs, got {network.n_inputs}.")
        self.n_features = n_features
        self.embedding = nn.Parameter(torch.empty(n_features, embedding_size))  # (D, E)
        # As in a linear layer on (e_j, x_j); the weights of the value are its last column.
        self.code = empty_linear(embedding_size + 1, code_size)
        self.network = network
        self.reset_parameters(torch_generator(0))

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draws the embeddings from the standard normal distribution, and redraws all layers."""
        self.embedding.normal_(generator=generator)
        reset_layers(self, generator)

    def forward(self, inputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Returns the outputs of the network; the generator is for dropout in training."""
        x, seen = inputs.split(self.n_features, dim=-1)  # (*, D)
        observed = seen.unsqueeze(-1) > 0.5  # (*, D, 1)
        x = torch.where(observed, x.unsqueeze(-1), 0.0)
        of_value = self.code.weight[:, -1]  # (code,)
        of_feature = self.embedding @ self.code.weight[:, :-1].mT + self.code.bias  # (D, code)
        codes = torch.relu(torch.addcmul(of_feature, x, of_value))  # (*, D, code)
        total = torch.where(observed, codes, 0.0).sum(dim=-2)  # (*, code)

        output: Tensor = self.network(total, generator)
        return output
