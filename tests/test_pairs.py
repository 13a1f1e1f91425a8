from itertools import combinations, product

from tests.pairs import few, others


def test_every_pair_of_three_parameters_occurs():
    whole = list(product("abcd", "xyz", "01"))
    chosen = few(whole)
    assert len(chosen) < len(whole) and chosen <= set(whole)
    for first, second in combinations(range(3), 2):
        assert {(each[first], each[second]) for each in whole} == {(each[first], each[second]) for each in chosen}


def test_every_value_of_two_parameters_occurs():
    assert len(few(list(product("abcd", "xyz")))) == 4


def test_a_test_with_one_parameter_keeps_all_values_and_the_choice_never_changes():
    items = [("one", (each,)) for each in "abc"] + [("two", each) for each in product("ab", "xy")]
    assert others(items) == others(items) == {("two", ("a", "y")), ("two", ("b", "x"))}
