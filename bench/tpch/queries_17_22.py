"""TPC-H queries 17 to 22 (§2.4) on Dask dataframes, with the validation parameters."""

from __future__ import annotations

from pandas import Timestamp

from bench.tpch.frames import Frame, Tables, among, not_among, query, revenue


@query(17, "Small-quantity-order revenue", scalar="avg_yearly")
def q17(t: Tables) -> Frame:
    """BRAND = Brand#23, CONTAINER = MED BOX."""
    parts = t.part[(t.part.p_brand == "Brand#23") & (t.part.p_container == "MED BOX")]
    lines = among(t.lineitem[["l_partkey", "l_quantity", "l_extendedprice"]], "l_partkey", parts, "p_partkey")
    mean = lines.groupby("l_partkey").agg(mean=("l_quantity", "mean")).reset_index()
    lines = lines.merge(mean, on="l_partkey")
    return lines[lines.l_quantity < 0.2 * lines["mean"]].l_extendedprice.sum() / 7.0


@query(18, "Large volume customer", order=("-o_totalprice", "o_orderdate"), limit=100)
def q18(t: Tables) -> Frame:
    """QUANTITY = 300."""
    sums = t.lineitem.groupby("l_orderkey")[["l_quantity"]].sum(split_out=True).reset_index()
    orders = t.orders[["o_orderkey", "o_custkey", "o_orderdate", "o_totalprice"]]
    orders = orders.merge(sums[sums.l_quantity > 300], left_on="o_orderkey", right_on="l_orderkey")
    found = orders.merge(t.customer[["c_custkey", "c_name"]], left_on="o_custkey", right_on="c_custkey")
    found = found.assign(sum_qty=found.l_quantity)
    return found[["c_name", "c_custkey", "o_orderkey", "o_orderdate", "o_totalprice", "sum_qty"]]


@query(19, "Discounted revenue", scalar="revenue")
def q19(t: Tables) -> Frame:
    """QUANTITY1…3 = 1, 10, 20; BRAND1…3 = Brand#12, Brand#23, Brand#34."""
    lines = t.lineitem
    lines = lines[lines.l_shipmode.isin(["AIR", "AIR REG"]) & (lines.l_shipinstruct == "DELIVER IN PERSON")]
    lines = lines.assign(revenue=revenue(lines))[["l_partkey", "l_quantity", "revenue"]]
    parts = t.part[["p_partkey", "p_brand", "p_container", "p_size"]]
    sold = lines.merge(parts[parts.p_size >= 1], left_on="l_partkey", right_on="p_partkey")
    wanted = None
    for brand, size, quantity, largest in (
        ("Brand#12", "SM", 1, 5),
        ("Brand#23", "MED", 10, 10),
        ("Brand#34", "LG", 20, 15),
    ):
        kinds = {"SM": "CASE BOX PACK PKG", "MED": "BAG BOX PKG PACK", "LG": "CASE BOX PACK PKG"}[size]
        one = (sold.p_brand == brand) & sold.p_container.isin([f"{size} {kind}" for kind in kinds.split()])
        one = one & (sold.l_quantity >= quantity) & (sold.l_quantity <= quantity + 10) & (sold.p_size <= largest)
        wanted = one if wanted is None else wanted | one
    return sold[wanted].revenue.sum()


@query(20, "Potential part promotion", order=("s_name",))
def q20(t: Tables) -> Frame:
    """COLOR = forest, DATE = 1994-01-01, NATION = CANADA."""
    parts = t.part[t.part.p_name.str.startswith("forest")]
    lines = t.lineitem
    lines = lines[(lines.l_shipdate >= Timestamp("1994-01-01")) & (lines.l_shipdate < Timestamp("1995-01-01"))]
    lines = among(lines[["l_partkey", "l_suppkey", "l_quantity"]], "l_partkey", parts, "p_partkey")
    sold = lines.groupby(["l_partkey", "l_suppkey"]).agg(quantity=("l_quantity", "sum")).reset_index()
    stock = t.partsupp[["ps_partkey", "ps_suppkey", "ps_availqty"]].merge(
        sold, left_on=["ps_partkey", "ps_suppkey"], right_on=["l_partkey", "l_suppkey"]
    )
    stock = stock[stock.ps_availqty > 0.5 * stock.quantity]
    suppliers = among(t.supplier, "s_nationkey", t.nation[t.nation.n_name == "CANADA"], "n_nationkey")
    return among(suppliers, "s_suppkey", stock, "ps_suppkey")[["s_name", "s_address"]]


@query(21, "Suppliers who kept orders waiting", order=("-numwait", "s_name"), limit=100)
def q21(t: Tables) -> Frame:
    """NATION = SAUDI ARABIA.

    That another supplier has a line in the order means that its least and its largest supplier differ; that no other
    was late, that they are the same among the late lines.
    """
    nations = t.nation[t.nation.n_name == "SAUDI ARABIA"]
    suppliers = among(t.supplier[["s_suppkey", "s_name", "s_nationkey"]], "s_nationkey", nations, "n_nationkey")
    failed = t.orders[t.orders.o_orderstatus == "F"]
    lines = t.lineitem
    lines = lines.assign(late=lines.l_receiptdate > lines.l_commitdate)[["l_orderkey", "l_suppkey", "late"]]
    late = lines[lines.late][["l_orderkey", "l_suppkey"]]
    every = lines.groupby("l_orderkey").agg(first=("l_suppkey", "min"), last=("l_suppkey", "max"))
    alone = late.groupby("l_orderkey").agg(first=("l_suppkey", "min"), last=("l_suppkey", "max"))
    every, alone = every[every["first"] != every["last"]], alone[alone["first"] == alone["last"]]
    waited = among(late, "l_suppkey", suppliers, "s_suppkey")
    waited = among(waited, "l_orderkey", failed, "o_orderkey")
    waited = among(waited, "l_orderkey", every.reset_index(), "l_orderkey")
    waited = among(waited, "l_orderkey", alone.reset_index(), "l_orderkey")
    waited = waited.merge(suppliers[["s_suppkey", "s_name"]], left_on="l_suppkey", right_on="s_suppkey")
    return waited.groupby("s_name").agg(numwait=("l_orderkey", "count")).reset_index()


@query(22, "Global sales opportunity", order=("cntrycode",))
def q22(t: Tables) -> Frame:
    """I1…7 = 13, 31, 23, 29, 30, 18, 17."""
    customers = t.customer[["c_custkey", "c_phone", "c_acctbal"]]
    customers = customers.assign(cntrycode=customers.c_phone.str.slice(0, 2))
    customers = customers[customers.cntrycode.isin(["13", "31", "23", "29", "30", "18", "17"])]
    mean = customers[customers.c_acctbal > 0.0].c_acctbal.mean()
    customers = not_among(customers[customers.c_acctbal > mean], "c_custkey", t.orders, "o_custkey")
    made = customers.groupby("cntrycode").agg(numcust=("c_custkey", "count"), totacctbal=("c_acctbal", "sum"))
    return made.reset_index()


QUERIES = (q17, q18, q19, q20, q21, q22)
