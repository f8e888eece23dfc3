"""What the page of `trainrun sweep plot` looks like beyond the style of all pages.

Layer: cli.
"""

from __future__ import annotations

STYLE = """
:root{--v0:#4a1486;--v1:#2c5aa0;--v2:#1b7c83;--v3:#4c9f5a;--v4:#a3a02c;--v5:#dcb13c}
@media(prefers-color-scheme:dark){:root{--v0:#fde725;--v1:#9bd93c;--v2:#35b779;--v3:#1f9e89;
--v4:#3b7fae;--v5:#6a5aa8}}
.marks{position:absolute;width:0;height:0}.key{width:34px;height:16px;vertical-align:-3px;
margin-right:.35em}
.picture{display:block;width:100%;min-width:48rem;height:auto;background:var(--card);
border-radius:.2rem}
.figures .picture{min-width:0}.figures{grid-template-columns:repeat(auto-fill,minmax(min(100%,
24rem),1fr))}
.picture text{fill:var(--fg);font-size:12px;paint-order:stroke;stroke:var(--card);stroke-width:3px}
.picture .name{font-weight:600}
.grid{stroke:var(--line)}.axis{stroke:var(--dim)}
.trial{fill:none;stroke:currentColor;stroke-width:1.6;stroke-linejoin:round;stroke-linecap:round}
.hollow{fill:none;stroke:currentColor;stroke-width:1.8}
.trial{stroke-opacity:.75}.trial.best{stroke-width:3;stroke-opacity:1}.trial:hover{stroke-width:5;stroke-opacity:1}
.Succeeded{color:var(--useful)}.Stopped{color:var(--stall)}.Diverged{color:var(--drain)}
.Errored{color:var(--rework)}.Skipped,.Open{color:var(--dim)}.best{color:var(--fg)}
.trial.Stopped{stroke-dasharray:7 5}
.trial.Diverged,.trial.Errored,.trial.Skipped{stroke-dasharray:1 5}
.v0{color:var(--v0)}.v1{color:var(--v1)}.v2{color:var(--v2)}.v3{color:var(--v3)}.v4{color:var(--v4)}
.v5{color:var(--v5)}.v6{color:var(--dim);stroke-dasharray:1 5}
.legend i{background:currentColor;margin:0 .15em 0 0}
"""
