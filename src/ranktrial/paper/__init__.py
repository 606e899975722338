"""The paper (Oosterhuis and de Rijke 2020) reproduced; only the command line imports it.

proof           Appendix A: cases where interleaving prefers the worse ranker
logopt_network  LogOpt as published, Algorithm 1
network         its logging policy: Plackett-Luce over the scores of a small network, trained by gradient steps
click_models    EM and regression-EM: position bias and relevance from clicks
data            data sets: LETOR files, synthetic sets, linear rankers and their training
study           the experiments: plan, run, figures, claims
"""
