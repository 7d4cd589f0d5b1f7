"""The word that recurs among what was bought."""

from pwagents.puma.recurring import recurring_word


def entries(*titles):
    return [{"title": title, "store": None} for title in titles]


def test_a_word_recurs_as_it_is_written_and_what_the_instruction_says_is_known():
    bought = entries("Oak mug", "Oak bowl", "Oak mug", "Red bowl")
    assert recurring_word("A mug!", bought) == "Oak"
    assert recurring_word("Oak, please", bought) == "mug"  # met before the bowl, which is as frequent
    assert recurring_word("A mug!", bought[:1]) == ""
    assert recurring_word("A mug!", []) == ""


def test_stop_words_do_not_recur():
    bought = entries("Case for iPhone with Stand", "Charger for Samsung with Cable", "Cable for Car")
    assert recurring_word("something new", bought) == "Cable"
