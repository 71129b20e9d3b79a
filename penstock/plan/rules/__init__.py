"""The incremental rules, one file each: the algebra, the Spark half, and the half that runs on state."""

from __future__ import annotations

from penstock.plan import nodes
from penstock.plan.compiler import Rules
from penstock.plan.rules.aggregate import aggregate
from penstock.plan.rules.join import join
from penstock.plan.rules.limit import limit
from penstock.plan.rules.linear import expand, filter_, generate, project, scan, union, values
from penstock.plan.rules.window import window

RULES: Rules = {
    nodes.Scan: scan,
    nodes.Values: values,
    nodes.Project: project,
    nodes.Filter: filter_,
    nodes.Generate: generate,
    nodes.Expand: expand,
    nodes.Union: union,
    nodes.Join: join,
    nodes.Aggregate: aggregate,
    nodes.Window: window,
    nodes.Limit: limit,
}
