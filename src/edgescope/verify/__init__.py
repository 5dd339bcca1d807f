"""The accuracy gate: it judges whether a variant gives the answers of the fp32 network."""
