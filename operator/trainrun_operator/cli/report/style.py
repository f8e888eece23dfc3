"""How a page looks, in light and in dark, wide and narrow; the colors of its curves and bars.

Layer: cli.
"""

from __future__ import annotations

STYLE = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--dim:#57606a;--line:#d0d7de;--card:#f6f8fa;
--good:#1a7f37;--bad:#cf222e;--note:#9a6700;
--useful:#2da44e;--rework:#cf222e;--checkpoint_stall:#bf8700;--hang:#82071e;--drain:#8250df;
--start:#54aeff;--rendezvous:#0969da;--load:#1b7c83;--first_step:#0a3069;--queue:#8c959f;
--image:#6e7781;--backoff:#afb8c1;--unknown:#d8b4a0;
--c0:#afb8c1;--c1:#cf222e;--c2:#0969da;--c3:#8250df;--c4:#1a7f37;--c5:#bf8700;--c6:#1b7c83;
--c7:#bc4c00;--c8:#bf3989;--c9:#54aeff;--c10:#6e7781}
@media(prefers-color-scheme:dark){:root{--bg:#0d1117;--fg:#e6edf3;--dim:#8d96a0;--line:#30363d;
--card:#161b22;--good:#3fb950;--bad:#f85149;--note:#d29922;
--useful:#3fb950;--rework:#f85149;--checkpoint_stall:#d29922;--hang:#ff7b72;--drain:#a371f7;
--start:#79c0ff;--rendezvous:#388bfd;--load:#39c5cf;--first_step:#a5d6ff;--queue:#6e7681;
--image:#8b949e;--backoff:#484f58;--unknown:#9e6a5a;
--c0:#6e7681;--c1:#f85149;--c2:#58a6ff;--c3:#a371f7;--c4:#3fb950;--c5:#d29922;--c6:#39c5cf;
--c7:#f0883e;--c8:#f778ba;--c9:#a5d6ff;--c10:#b1bac4}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,sans-serif}
main{max-width:62rem;margin:0 auto;padding:1rem}
h1{margin:0;font-size:1.5rem}h2{font-size:1.15rem;margin:1.6rem 0 .5rem}
p{margin:.3rem 0}ul{margin:.4rem 0;padding-left:1.2rem}h1,li,p,td{overflow-wrap:anywhere}
header{border-left:.4rem solid var(--dim);padding-left:.8rem}
header.good{border-color:var(--good)}header.bad{border-color:var(--bad)}
header.note{border-color:var(--note)}
.dim,time{color:var(--dim);font-size:.875rem}.deeper{margin-left:1.2rem}
li.good,p.good,tr.good td{color:var(--good)}li.note,p.note,tr.note td{color:var(--note)}
li.bad,p.bad,tr.bad td{color:var(--bad);font-weight:600}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem;margin-top:.6rem}
td,th{padding:.15rem .9rem .15rem 0;text-align:left;vertical-align:top}
tr.below td{color:var(--dim);font-weight:400;padding:0 0 .3rem 1rem}
.sums td+td{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
.chapter{border:1px solid var(--line);border-radius:.4rem;padding:.7rem .9rem;margin:.7rem 0}
.chapter h2{margin:0;font-size:1rem}
pre{overflow-x:auto;font-size:.8rem;background:var(--card);border:1px solid var(--line);
padding:.5rem;margin:.4rem 0 0}details{margin:.4rem 0 0}summary{cursor:pointer;font-size:.9rem}
.bar{display:flex;height:1rem;border-radius:.2rem;overflow:hidden;min-width:2px}
.bar i{display:block;height:100%}
.key{display:inline-block;width:.8em;height:.8em;border-radius:.15em;margin-right:.4em}
.line{display:flex;align-items:center;gap:.5rem;color:inherit;text-decoration:none;padding:.12rem 0}
.line b{flex:0 0 6.2rem;font-weight:400;font-size:.875rem}
.line em{flex:0 0 4.2rem;font-style:normal;font-size:.8rem;color:var(--bad);white-space:nowrap}
.track{flex:1;background:var(--card);border-radius:.2rem;overflow:hidden}
.scale{display:flex;justify-content:space-between;margin-left:6.7rem;margin-right:4.7rem}
.legend{display:flex;flex-wrap:wrap;gap:.2rem .9rem;font-size:.875rem}
.figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,24rem),1fr));gap:1rem}
figure{margin:0}figcaption{font-size:.9rem;font-weight:600;overflow-wrap:anywhere}
.plot{position:relative;background:var(--card);border-radius:.2rem;padding:1.2rem .4rem}
.plot svg{display:block;width:100%;height:8rem;overflow:visible}
.plot b{position:absolute;left:.4rem;font:400 .75rem system-ui,sans-serif;color:var(--dim)}
.plot b:first-child{top:.1rem}.plot b:last-child{bottom:.1rem}
path{fill:none;stroke-width:1.8;stroke-linecap:round;stroke-linejoin:round;
vector-effect:non-scaling-stroke}path.thick{stroke-width:7}path.dot{stroke-width:8}
.steps{display:flex;justify-content:space-between;color:var(--dim);font-size:.75rem;margin:0}
@media(max-width:40rem){.line em{flex-basis:1rem}.line em span{display:none}.scale{margin:0}
.line b{flex-basis:5rem}.chapter{padding:.6rem}.scale span{max-width:45%}}
"""
