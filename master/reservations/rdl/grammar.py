"""The grammar of the text syntax."""

GRAMMAR = r"""
request: expression every?
every: "every" span until?
until: "until" time

?expression: atom | any_of | all_of | order | window

atom: "atom" "(" bundle "," INT "," INT "," span "," span ")"
any_of: "any" "(" expression ("," expression)* ")"
all_of: "all" "(" expression ("," expression)* ")"
order: "order" "(" expression ("," expression)* ("," NO_GAP)? ")"
window: "window" "(" expression "," time "," time ")"

bundle: NAME | "<" amount ("," amount)* ">"
amount: QUANTITY RESOURCE?
span: INT | SPAN
time: INT | SPAN | AHEAD | DATE

NO_GAP: "no_gap"
INT.3: /[0-9]{1,18}(?![0-9A-Za-z.\-])/
SPAN.2: /[0-9]{1,18}(\.[0-9]{1,9})?(s|min|h|d)(?![A-Za-z])/
AHEAD: /\+[0-9]{1,18}(\.[0-9]{1,9})?(s|min|h|d)?/
DATE.4: /[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{5,15}(Z|[+-][0-9]{2}:?[0-9]{2})?/
QUANTITY.1: /[0-9]{1,18}(\.[0-9]{1,9})?\s?(cores?|[KMGT]?i?(B|bit)?(\/s)?)(?![A-Za-z])/
RESOURCE: /RAM|memory|disk|network|cores?/
NAME: /[A-Za-z_][A-Za-z0-9_.\-]*/

%import common.WS
%ignore WS
"""
