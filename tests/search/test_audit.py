"""A search over twenty candidates is attacked: its claim stands; one that does not pay for choosing is caught."""

from benchmarks.selection import attacked, honest, unpaid_choice

EPSILON = 0.5


def test_the_honest_claim_stands_and_the_cheat_is_caught():
    # The cheat's model is right about a canary that was held out, as 198 of 200 records are, unless all eight coins
    # fell wrong: of the 70 runs that judge it at least 61 agree on either side, except with a chance below 1e-6.
    cheat = attacked("unpaid choice", unpaid_choice(EPSILON, 8), EPSILON, 100)
    assert cheat.refuted, cheat
    # An alarm about a true claim has a chance of one in a million.
    fair = attacked("honest", honest(EPSILON), EPSILON, 20)
    assert not fair.refuted, fair
