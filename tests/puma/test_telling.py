"""Words that tell what is wanted."""

from pwagents.puma.telling import recurring_words, telling_words


def entries(*titles):
    return [{"title": title, "store": None} for title in titles]


def test_words_recur_as_they_are_written_and_what_the_instruction_says_is_known():
    bought = entries("Oak mug", "Oak bowl", "Oak mug", "Red bowl")
    assert recurring_words("A mug!", bought) == ["Oak", "bowl"]
    assert recurring_words("A mug!", bought[:1]) == []


def test_stop_words_tell_nothing():
    bought = entries("Case for iPhone with Stand", "Charger for Samsung with Cable", "Cable for Car")
    assert recurring_words("something new", bought) == ["Cable"]
    assert telling_words("Something with a Cable, for me") == ["Cable"]
