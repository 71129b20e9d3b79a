"""A tiny seeded TPC-H: value domains chosen so that the 22 queries find rows, and refreshes for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, timedelta
from decimal import Decimal
from random import Random
from typing import Any

from tests.oracle.model import Action, Model, Operation, Row, Transaction

SUPPLIERS, PARTS, CUSTOMERS, ORDERS = 14, 40, 60, 160

_REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
_NATIONS = (
    *(("ALGERIA", 0), ("ARGENTINA", 1), ("BRAZIL", 1), ("CANADA", 1), ("EGYPT", 4)),
    *(("ETHIOPIA", 0), ("FRANCE", 3), ("GERMANY", 3), ("INDIA", 2), ("INDONESIA", 2)),
    *(("IRAN", 4), ("IRAQ", 4), ("JAPAN", 2), ("JORDAN", 4), ("KENYA", 0)),
    *(("MOROCCO", 0), ("MOZAMBIQUE", 0), ("PERU", 1), ("CHINA", 2), ("ROMANIA", 3)),
    *(("SAUDI ARABIA", 4), ("VIETNAM", 2), ("RUSSIA", 3), ("UNITED KINGDOM", 3), ("UNITED STATES", 1)),
)
# The nations that the queries name; nobody lives elsewhere, or a tiny scale would find no one.
_HOMES = tuple(
    key
    for key, (name, _) in enumerate(_NATIONS)
    if name in ("BRAZIL", "CANADA", "FRANCE", "GERMANY", "INDIA", "CHINA", "SAUDI ARABIA")
)
_TYPES = (
    "ECONOMY ANODIZED STEEL",
    "PROMO BURNISHED COPPER",
    "STANDARD POLISHED BRASS",
    "MEDIUM POLISHED TIN",
    "LARGE PLATED BRASS",
    "SMALL BRUSHED NICKEL",
)
_MAKES = (
    ("Brand#12", "SM CASE"),
    ("Brand#23", "MED BOX"),
    ("Brand#34", "LG BOX"),
    ("Brand#45", "JUMBO PKG"),
    ("Brand#11", "WRAP CAN"),
)
_COLOURS = ("forest", "green", "ivory", "azure", "linen")
_SIZES = (3, 5, 9, 14, 15, 15, 45, 49)
_SEGMENTS = ("BUILDING", "AUTOMOBILE", "MACHINERY")
_PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
_SHIP_MODES = ("AIR", "AIR REG", "MAIL", "SHIP")
_INSTRUCTIONS = ("DELIVER IN PERSON", "COLLECT COD")
_FIRST_DAY = date(1992, 1, 1)
_DAYS = 2400
_TODAY = date(1995, 6, 17)


def _money(rng: Random, low: int, high: int) -> Decimal:
    return Decimal(rng.randrange(low * 100, high * 100)) / 100


def _phone(rng: Random, nation: int) -> str:
    return f"{nation + 10}-{rng.randrange(100, 1000)}-{rng.randrange(1000, 10000)}"


def _supplier(rng: Random, key: int) -> Row:
    nation = _HOMES[key % len(_HOMES)]
    return {
        "s_suppkey": key,
        "s_name": f"Supplier#{key:09d}",
        "s_address": f"{key} Dock Road",
        "s_nationkey": nation,
        "s_phone": _phone(rng, nation),
        "s_acctbal": _money(rng, -999, 9999),
        "s_comment": "Customer had Complaints" if key == 5 else "quiet",
    }


def _part(rng: Random, key: int) -> Row:
    brand, container = rng.choice(_MAKES)
    return {
        "p_partkey": key,
        "p_name": " ".join(rng.sample(_COLOURS, 2)),
        "p_mfgr": f"Manufacturer#{key % 5 + 1}",
        "p_brand": brand,
        "p_type": rng.choice(_TYPES),
        "p_size": rng.choice(_SIZES),
        "p_container": container,
        "p_retailprice": Decimal(900 + key),
        "p_comment": "part",
    }


def _suppliers_of(part: int) -> tuple[int, ...]:
    """The four suppliers of a part: line items name one of them."""
    return tuple((part + step * (SUPPLIERS // 4)) % SUPPLIERS + 1 for step in range(4))


def _partsupp(rng: Random, part: int, supplier: int) -> Row:
    return {
        "ps_partkey": part,
        "ps_suppkey": supplier,
        "ps_availqty": rng.randrange(1, 200),
        "ps_supplycost": _money(rng, 1, 1000),
        "ps_comment": "stock",
    }


def _customer(rng: Random, key: int) -> Row:
    nation = rng.choice(_HOMES)
    return {
        "c_custkey": key,
        "c_name": f"Customer#{key:09d}",
        "c_address": f"{key} High Street",
        "c_nationkey": nation,
        "c_phone": _phone(rng, nation),
        "c_acctbal": _money(rng, -999, 9999),
        "c_mktsegment": rng.choice(_SEGMENTS),
        "c_comment": "customer",
    }


def _order(rng: Random, key: int) -> tuple[Row, list[Row]]:
    """An order and its lines. As in TPC-H, a third of the customers never order."""
    placed = _FIRST_DAY + timedelta(days=rng.randrange(_DAYS))
    bulk = key % 20 == 0
    lines = [
        _line(rng, key, number, placed, bulk=bulk) for number in range(1, 8 if bulk else rng.randrange(2, 6))
    ]
    order = {
        "o_orderkey": key,
        "o_custkey": rng.choice([number for number in range(1, CUSTOMERS + 1) if number % 3]),
        "o_orderstatus": "F" if placed < _TODAY else rng.choice("OP"),
        "o_totalprice": sum((line["l_extendedprice"] for line in lines), Decimal(0)),
        "o_orderdate": placed,
        "o_orderpriority": rng.choice(_PRIORITIES),
        "o_clerk": f"Clerk#{rng.randrange(5)}",
        "o_shippriority": 0,
        "o_comment": rng.choice(("special packing requests", "none", "none")),
    }
    return order, lines


def _line(rng: Random, order: int, number: int, placed: date, *, bulk: bool) -> Row:
    part = rng.randrange(1, PARTS + 1)
    quantity = rng.randrange(45, 51) if bulk else rng.randrange(1, 51)
    shipped = placed + timedelta(days=rng.randrange(1, 122))
    received = shipped + timedelta(days=rng.randrange(1, 31))
    return {
        "l_orderkey": order,
        "l_partkey": part,
        "l_suppkey": rng.choice(_suppliers_of(part)),
        "l_linenumber": number,
        "l_quantity": Decimal(quantity),
        "l_extendedprice": Decimal(quantity * (900 + part)),
        "l_discount": Decimal(rng.randrange(0, 11)) / 100,
        "l_tax": Decimal(rng.randrange(0, 9)) / 100,
        "l_returnflag": rng.choice("RA") if received <= _TODAY else "N",
        "l_linestatus": "O" if shipped > _TODAY else "F",
        "l_shipdate": shipped,
        "l_commitdate": placed + timedelta(days=rng.randrange(30, 121)),
        "l_receiptdate": received,
        "l_shipinstruct": rng.choice(_INSTRUCTIONS),
        "l_shipmode": rng.choice(_SHIP_MODES),
        "l_comment": "line",
    }


def _keys(count: int, make: Callable[[Random, int], Row], rng: Random) -> tuple[Row, ...]:
    return tuple(make(rng, key) for key in range(1, count + 1))


def _orders(rng: Random, keys: range) -> Transaction:
    made = [_order(rng, key) for key in keys]
    lines = tuple(line for _, order_lines in made for line in order_lines)
    return (
        Operation(Action.INSERT, "orders", tuple(order for order, _ in made)),
        Operation(Action.INSERT, "lineitem", lines),
    )


def load(rng: Random) -> Transaction:
    """All tables."""
    regions: Iterator[dict[str, Any]] = (
        {"r_regionkey": key, "r_name": name, "r_comment": ""} for key, name in enumerate(_REGIONS)
    )
    nations: Iterator[dict[str, Any]] = (
        {"n_nationkey": key, "n_name": name, "n_regionkey": region, "n_comment": ""}
        for key, (name, region) in enumerate(_NATIONS)
    )
    stock = tuple(
        _partsupp(rng, part, supplier) for part in range(1, PARTS + 1) for supplier in _suppliers_of(part)
    )
    return (
        Operation(Action.INSERT, "region", tuple(regions)),
        Operation(Action.INSERT, "nation", tuple(nations)),
        Operation(Action.INSERT, "supplier", _keys(SUPPLIERS, _supplier, rng)),
        Operation(Action.INSERT, "part", _keys(PARTS, _part, rng)),
        Operation(Action.INSERT, "partsupp", stock),
        Operation(Action.INSERT, "customer", _keys(CUSTOMERS, _customer, rng)),
        *_orders(rng, range(1, ORDERS + 1)),
    )


def refresh(rng: Random, model: Model, number: int) -> Transaction:
    """RF1 and RF2 in one transaction: new orders come, old ones go with their lines.

    Beside the specification, some prices and balances change, for the queries that read no order.
    """
    orders = model.tables["orders"].rows
    gone = {row["o_orderkey"] for row in rng.sample(orders, len(orders) // 8)}
    lines = tuple(row for row in model.tables["lineitem"].rows if row["l_orderkey"] in gone)
    first = ORDERS * (number + 1) + 1
    stock = rng.sample(model.tables["partsupp"].rows, 15)
    customers = rng.sample(model.tables["customer"].rows, 8)
    suppliers = rng.sample(model.tables["supplier"].rows, 2)
    return (
        *_orders(rng, range(first, first + ORDERS // 8)),
        Operation(Action.DELETE, "lineitem", lines),
        Operation(Action.DELETE, "orders", tuple(row for row in orders if row["o_orderkey"] in gone)),
        Operation(
            Action.INSERT, "partsupp", tuple({**row, "ps_supplycost": _money(rng, 1, 900)} for row in stock)
        ),
        Operation(
            Action.INSERT, "customer", tuple({**row, "c_acctbal": _money(rng, 0, 9999)} for row in customers)
        ),
        Operation(
            Action.INSERT, "supplier", tuple({**row, "s_acctbal": _money(rng, 0, 9999)} for row in suppliers)
        ),
    )
