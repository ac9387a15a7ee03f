"""Rules of Softmax, LogSoftmax and Hardmax."""
