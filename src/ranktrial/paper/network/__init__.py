"""The paper's trained logging policy: a small network, gradients of the variance by its scores, and its training."""
