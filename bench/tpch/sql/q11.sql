-- FRACTION is 0.0001 / scale factor (TPC-H 2.4.11.3)
select ps_partkey, sum(ps_supplycost * ps_availqty) as value
from partsupp, supplier, nation
where ps_suppkey = s_suppkey and s_nationkey = n_nationkey and n_name = 'GERMANY'
group by ps_partkey
having value > (
    select sum(ps_supplycost * ps_availqty) * (0.0001 / $scale)
    from partsupp, supplier, nation
    where ps_suppkey = s_suppkey and s_nationkey = n_nationkey and n_name = 'GERMANY')
order by value desc
