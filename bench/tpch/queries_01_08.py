"""TPC-H queries 1 to 8 (§2.4) on Dask dataframes, with the validation parameters."""

from __future__ import annotations

from pandas import Timestamp

from bench.tpch.frames import Frame, Tables, among, query, revenue


@query(1, "Pricing summary report", order=("l_returnflag", "l_linestatus"))
def q01(t: Tables) -> Frame:
    """DELTA = 90 days before 1998-12-01."""
    lines = t.lineitem[t.lineitem.l_shipdate <= Timestamp("1998-09-02")]
    price = revenue(lines)
    lines = lines.assign(disc_price=price, charge=price * (1 + lines.l_tax))
    made = lines.groupby(["l_returnflag", "l_linestatus"]).agg(
        sum_qty=("l_quantity", "sum"),
        sum_base_price=("l_extendedprice", "sum"),
        sum_disc_price=("disc_price", "sum"),
        sum_charge=("charge", "sum"),
        avg_qty=("l_quantity", "mean"),
        avg_price=("l_extendedprice", "mean"),
        avg_disc=("l_discount", "mean"),
        count_order=("l_orderkey", "count"),
    )
    return made.reset_index()


@query(2, "Minimum cost supplier", order=("-s_acctbal", "n_name", "s_name", "p_partkey"), limit=100)
def q02(t: Tables) -> Frame:
    """SIZE = 15, TYPE = BRASS, REGION = EUROPE."""
    parts = t.part[(t.part.p_size == 15) & t.part.p_type.str.endswith("BRASS")][["p_partkey", "p_mfgr"]]
    nations = t.nation.merge(t.region[t.region.r_name == "EUROPE"], left_on="n_regionkey", right_on="r_regionkey")
    suppliers = t.supplier.merge(nations[["n_nationkey", "n_name"]], left_on="s_nationkey", right_on="n_nationkey")
    offers = t.partsupp[["ps_partkey", "ps_suppkey", "ps_supplycost"]]
    offers = offers.merge(parts, left_on="ps_partkey", right_on="p_partkey")
    offers = offers.merge(suppliers, left_on="ps_suppkey", right_on="s_suppkey")
    least = offers.groupby("p_partkey").agg(least=("ps_supplycost", "min")).reset_index()
    best = offers.merge(least, on="p_partkey")
    best = best[best.ps_supplycost == best.least]
    return best[["s_acctbal", "s_name", "n_name", "p_partkey", "p_mfgr", "s_address", "s_phone", "s_comment"]]


@query(3, "Shipping priority", order=("-revenue", "o_orderdate"), limit=10)
def q03(t: Tables) -> Frame:
    """SEGMENT = BUILDING, DATE = 1995-03-15."""
    day = Timestamp("1995-03-15")
    customers = t.customer[t.customer.c_mktsegment == "BUILDING"]
    orders = t.orders[t.orders.o_orderdate < day][["o_orderkey", "o_custkey", "o_orderdate", "o_shippriority"]]
    orders = among(orders, "o_custkey", customers, "c_custkey")
    lines = t.lineitem[t.lineitem.l_shipdate > day]
    lines = lines.assign(revenue=revenue(lines))[["l_orderkey", "revenue"]]
    sold = lines.merge(orders, left_on="l_orderkey", right_on="o_orderkey")
    made = sold.groupby(["l_orderkey", "o_orderdate", "o_shippriority"]).agg(revenue=("revenue", "sum"))
    return made.reset_index()[["l_orderkey", "revenue", "o_orderdate", "o_shippriority"]]


@query(4, "Order priority checking", order=("o_orderpriority",))
def q04(t: Tables) -> Frame:
    """DATE = 1993-07-01."""
    orders = t.orders[(t.orders.o_orderdate >= Timestamp("1993-07-01"))]
    orders = orders[orders.o_orderdate < Timestamp("1993-10-01")][["o_orderkey", "o_orderpriority"]]
    late = t.lineitem[t.lineitem.l_commitdate < t.lineitem.l_receiptdate]
    found = among(orders, "o_orderkey", late, "l_orderkey")
    return found.groupby("o_orderpriority").agg(order_count=("o_orderkey", "count")).reset_index()


@query(5, "Local supplier volume", order=("-revenue",))
def q05(t: Tables) -> Frame:
    """REGION = ASIA, DATE = 1994-01-01."""
    nations = t.nation.merge(t.region[t.region.r_name == "ASIA"], left_on="n_regionkey", right_on="r_regionkey")
    suppliers = t.supplier[["s_suppkey", "s_nationkey"]].merge(
        nations[["n_nationkey", "n_name"]], left_on="s_nationkey", right_on="n_nationkey"
    )
    orders = _ordered_in(t, "1994-01-01", "1995-01-01")[["o_orderkey", "o_custkey"]]
    orders = orders.merge(t.customer[["c_custkey", "c_nationkey"]], left_on="o_custkey", right_on="c_custkey")
    lines = t.lineitem.assign(revenue=revenue(t.lineitem))[["l_orderkey", "l_suppkey", "revenue"]]
    sold = lines.merge(orders, left_on="l_orderkey", right_on="o_orderkey")
    sold = sold.merge(suppliers, left_on=["l_suppkey", "c_nationkey"], right_on=["s_suppkey", "s_nationkey"])
    return sold.groupby("n_name").agg(revenue=("revenue", "sum")).reset_index()


@query(6, "Forecasting revenue change", scalar="revenue")
def q06(t: Tables) -> Frame:
    """DATE = 1994-01-01, DISCOUNT = 0.06, QUANTITY = 24."""
    lines = t.lineitem
    lines = lines[(lines.l_shipdate >= Timestamp("1994-01-01")) & (lines.l_shipdate < Timestamp("1995-01-01"))]
    lines = lines[(lines.l_discount >= 0.05) & (lines.l_discount <= 0.07) & (lines.l_quantity < 24)]
    return (lines.l_extendedprice * lines.l_discount).sum()


@query(7, "Volume shipping", order=("supp_nation", "cust_nation", "l_year"))
def q07(t: Tables) -> Frame:
    """NATION1 = FRANCE, NATION2 = GERMANY."""
    nations = t.nation[t.nation.n_name.isin(["FRANCE", "GERMANY"])][["n_nationkey", "n_name"]]
    suppliers = t.supplier[["s_suppkey", "s_nationkey"]].merge(
        nations.rename(columns={"n_name": "supp_nation"}), left_on="s_nationkey", right_on="n_nationkey"
    )[["s_suppkey", "supp_nation"]]
    customers = t.customer[["c_custkey", "c_nationkey"]].merge(
        nations.rename(columns={"n_name": "cust_nation"}), left_on="c_nationkey", right_on="n_nationkey"
    )[["c_custkey", "cust_nation"]]
    orders = t.orders[["o_orderkey", "o_custkey"]].merge(customers, left_on="o_custkey", right_on="c_custkey")
    lines = t.lineitem
    lines = lines[(lines.l_shipdate >= Timestamp("1995-01-01")) & (lines.l_shipdate <= Timestamp("1996-12-31"))]
    lines = lines.assign(l_year=lines.l_shipdate.dt.year, volume=revenue(lines))
    lines = lines[["l_orderkey", "l_suppkey", "l_year", "volume"]]
    sold = lines.merge(suppliers, left_on="l_suppkey", right_on="s_suppkey")
    sold = sold.merge(orders, left_on="l_orderkey", right_on="o_orderkey")
    sold = sold[sold.supp_nation != sold.cust_nation]
    return sold.groupby(["supp_nation", "cust_nation", "l_year"]).agg(revenue=("volume", "sum")).reset_index()


@query(8, "National market share", order=("o_year",))
def q08(t: Tables) -> Frame:
    """NATION = BRAZIL, REGION = AMERICA, TYPE = ECONOMY ANODIZED STEEL."""
    parts = t.part[t.part.p_type == "ECONOMY ANODIZED STEEL"]
    nations = t.nation.merge(t.region[t.region.r_name == "AMERICA"], left_on="n_regionkey", right_on="r_regionkey")
    customers = among(t.customer[["c_custkey", "c_nationkey"]], "c_nationkey", nations, "n_nationkey")
    orders = t.orders
    orders = orders[(orders.o_orderdate >= Timestamp("1995-01-01")) & (orders.o_orderdate <= Timestamp("1996-12-31"))]
    orders = among(orders[["o_orderkey", "o_custkey", "o_orderdate"]], "o_custkey", customers, "c_custkey")
    orders = orders.assign(o_year=orders.o_orderdate.dt.year)[["o_orderkey", "o_year"]]
    suppliers = t.supplier[["s_suppkey", "s_nationkey"]].merge(
        t.nation[["n_nationkey", "n_name"]], left_on="s_nationkey", right_on="n_nationkey"
    )
    lines = t.lineitem.assign(volume=revenue(t.lineitem))[["l_orderkey", "l_partkey", "l_suppkey", "volume"]]
    lines = among(lines, "l_partkey", parts, "p_partkey")
    sold = lines.merge(orders, left_on="l_orderkey", right_on="o_orderkey")
    sold = sold.merge(suppliers[["s_suppkey", "n_name"]], left_on="l_suppkey", right_on="s_suppkey")
    sold = sold.assign(brazil=sold.volume.where(sold.n_name == "BRAZIL", 0.0))
    made = sold.groupby("o_year").agg(brazil=("brazil", "sum"), volume=("volume", "sum")).reset_index()
    return made.assign(mkt_share=made.brazil / made.volume)[["o_year", "mkt_share"]]


def _ordered_in(t: Tables, first: str, end: str) -> Frame:
    return t.orders[(t.orders.o_orderdate >= Timestamp(first)) & (t.orders.o_orderdate < Timestamp(end))]


QUERIES = (q01, q02, q03, q04, q05, q06, q07, q08)
