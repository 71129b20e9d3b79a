"""What a generation tells of its progress before it takes over."""

from __future__ import annotations

from penstock.replica.promotion import Told, forget_progress, progress_key
from penstock.shard.stores.place import Place
from tests.shard.stores import Memory


def test_what_generations_told_that_are_over_is_deleted() -> None:
    memory = Memory()
    for generation, member in ((1, "dead"), (2, "a"), (2, "b"), (3, "next"), (10, "later")):
        memory.put(progress_key("shop", generation, member), Told(1, True, True, 0, 0.0, {}).encoded)
    forget_progress(Place(memory, memory), "shop", 2)
    assert sorted(memory.objects) == [progress_key("shop", 10, "later"), progress_key("shop", 3, "next")]
