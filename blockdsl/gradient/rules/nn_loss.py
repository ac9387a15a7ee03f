"""Rules of the loss operators SoftmaxCrossEntropyLoss and NegativeLogLikelihoodLoss."""
