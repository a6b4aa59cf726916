"""TPC-H queries 9 to 16 (§2.4) on Dask dataframes, with the validation parameters."""

from __future__ import annotations

from pandas import Timestamp

from bench.tpch.frames import Frame, Tables, among, not_among, query, revenue


@query(9, "Product type profit measure", order=("nation", "-o_year"))
def q09(t: Tables) -> Frame:
    """COLOR = green."""
    parts = t.part[t.part.p_name.str.contains("green", regex=False)]
    suppliers = t.supplier[["s_suppkey", "s_nationkey"]].merge(
        t.nation[["n_nationkey", "n_name"]], left_on="s_nationkey", right_on="n_nationkey"
    )
    lines = t.lineitem.assign(price=revenue(t.lineitem))
    lines = lines[["l_orderkey", "l_partkey", "l_suppkey", "l_quantity", "price"]]
    lines = among(lines, "l_partkey", parts, "p_partkey")
    lines = lines.merge(
        t.partsupp[["ps_partkey", "ps_suppkey", "ps_supplycost"]],
        left_on=["l_partkey", "l_suppkey"],
        right_on=["ps_partkey", "ps_suppkey"],
    )
    lines = lines.merge(suppliers[["s_suppkey", "n_name"]], left_on="l_suppkey", right_on="s_suppkey")
    lines = lines.merge(t.orders[["o_orderkey", "o_orderdate"]], left_on="l_orderkey", right_on="o_orderkey")
    lines = lines.assign(
        nation=lines.n_name,
        o_year=lines.o_orderdate.dt.year,
        amount=lines.price - lines.ps_supplycost * lines.l_quantity,
    )
    return lines.groupby(["nation", "o_year"]).agg(sum_profit=("amount", "sum")).reset_index()


@query(10, "Returned item reporting", order=("-revenue",), limit=20)
def q10(t: Tables) -> Frame:
    """DATE = 1993-10-01."""
    orders = t.orders
    orders = orders[(orders.o_orderdate >= Timestamp("1993-10-01")) & (orders.o_orderdate < Timestamp("1994-01-01"))]
    lines = t.lineitem[t.lineitem.l_returnflag == "R"]
    lines = lines.assign(revenue=revenue(lines))[["l_orderkey", "revenue"]]
    sold = lines.merge(orders[["o_orderkey", "o_custkey"]], left_on="l_orderkey", right_on="o_orderkey")
    made = sold.groupby("o_custkey").agg(revenue=("revenue", "sum")).reset_index()
    made = t.customer.merge(made, left_on="c_custkey", right_on="o_custkey")
    made = made.merge(t.nation[["n_nationkey", "n_name"]], left_on="c_nationkey", right_on="n_nationkey")
    return made[["c_custkey", "c_name", "revenue", "c_acctbal", "n_name", "c_address", "c_phone", "c_comment"]]


@query(11, "Important stock identification", order=("-value",))
def q11(t: Tables) -> Frame:
    """NATION = GERMANY, FRACTION = 0.0001 / scale."""
    nations = t.nation[t.nation.n_name == "GERMANY"]
    suppliers = among(t.supplier[["s_suppkey", "s_nationkey"]], "s_nationkey", nations, "n_nationkey")
    stock = among(t.partsupp, "ps_suppkey", suppliers, "s_suppkey")
    stock = stock.assign(value=stock.ps_supplycost * stock.ps_availqty)[["ps_partkey", "value"]]
    made = stock.groupby("ps_partkey").agg(value=("value", "sum")).reset_index()
    return made[made.value > stock.value.sum() * (0.0001 / t.scale)]


@query(12, "Shipping modes and order priority", order=("l_shipmode",))
def q12(t: Tables) -> Frame:
    """SHIPMODE1 = MAIL, SHIPMODE2 = SHIP, DATE = 1994-01-01."""
    lines = t.lineitem
    lines = lines[lines.l_shipmode.isin(["MAIL", "SHIP"])]
    lines = lines[(lines.l_commitdate < lines.l_receiptdate) & (lines.l_shipdate < lines.l_commitdate)]
    lines = lines[(lines.l_receiptdate >= Timestamp("1994-01-01")) & (lines.l_receiptdate < Timestamp("1995-01-01"))]
    sold = lines[["l_orderkey", "l_shipmode"]].merge(
        t.orders[["o_orderkey", "o_orderpriority"]], left_on="l_orderkey", right_on="o_orderkey"
    )
    high = sold.o_orderpriority.isin(["1-URGENT", "2-HIGH"])
    sold = sold.assign(high=high.astype("int64"), low=(~high).astype("int64"))
    made = sold.groupby("l_shipmode").agg(high_line_count=("high", "sum"), low_line_count=("low", "sum"))
    return made.reset_index()


@query(13, "Customer distribution", order=("-custdist", "-c_count"))
def q13(t: Tables) -> Frame:
    """WORD1 = special, WORD2 = requests."""
    orders = t.orders[~t.orders.o_comment.str.contains("special.*requests")]
    counts = orders.groupby("o_custkey").agg(c_count=("o_orderkey", "count")).reset_index()
    customers = t.customer[["c_custkey"]].merge(counts, how="left", left_on="c_custkey", right_on="o_custkey")
    customers = customers.assign(c_count=customers.c_count.fillna(0).astype("int64"))
    return customers.groupby("c_count").agg(custdist=("c_custkey", "count")).reset_index()


@query(14, "Promotion effect", scalar="promo_revenue")
def q14(t: Tables) -> Frame:
    """DATE = 1995-09-01."""
    lines = t.lineitem
    lines = lines[(lines.l_shipdate >= Timestamp("1995-09-01")) & (lines.l_shipdate < Timestamp("1995-10-01"))]
    lines = lines.assign(revenue=revenue(lines))[["l_partkey", "revenue"]]
    sold = lines.merge(t.part[["p_partkey", "p_type"]], left_on="l_partkey", right_on="p_partkey")
    promoted = sold.revenue.where(sold.p_type.str.startswith("PROMO"), 0.0)
    return 100.0 * promoted.sum() / sold.revenue.sum()


@query(15, "Top supplier", order=("s_suppkey",))
def q15(t: Tables) -> Frame:
    """DATE = 1996-01-01."""
    lines = t.lineitem
    lines = lines[(lines.l_shipdate >= Timestamp("1996-01-01")) & (lines.l_shipdate < Timestamp("1996-04-01"))]
    lines = lines.assign(revenue=revenue(lines))[["l_suppkey", "revenue"]]
    made = lines.groupby("l_suppkey").agg(total_revenue=("revenue", "sum")).reset_index()
    best = made[made.total_revenue == made.total_revenue.max()]
    found = t.supplier.merge(best, left_on="s_suppkey", right_on="l_suppkey")
    return found[["s_suppkey", "s_name", "s_address", "s_phone", "total_revenue"]]


@query(16, "Parts/supplier relationship", order=("-supplier_cnt", "p_brand", "p_type", "p_size"))
def q16(t: Tables) -> Frame:
    """BRAND = Brand#45, TYPE = MEDIUM POLISHED, SIZE1…8 = 49, 14, 23, 45, 19, 3, 36, 9."""
    parts = t.part
    parts = parts[(parts.p_brand != "Brand#45") & ~parts.p_type.str.startswith("MEDIUM POLISHED")]
    parts = parts[parts.p_size.isin([49, 14, 23, 45, 19, 3, 36, 9])][["p_partkey", "p_brand", "p_type", "p_size"]]
    complained = t.supplier[t.supplier.s_comment.str.contains("Customer.*Complaints")]
    offers = not_among(t.partsupp[["ps_partkey", "ps_suppkey"]], "ps_suppkey", complained, "s_suppkey")
    offers = offers.merge(parts, left_on="ps_partkey", right_on="p_partkey")
    kinds = ["p_brand", "p_type", "p_size"]
    distinct = offers[[*kinds, "ps_suppkey"]].drop_duplicates()
    return distinct.groupby(kinds).agg(supplier_cnt=("ps_suppkey", "count")).reset_index()


QUERIES = (q09, q10, q11, q12, q13, q14, q15, q16)
