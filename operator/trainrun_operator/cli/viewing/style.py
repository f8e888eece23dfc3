"""The style of the list of runs, in addition to that of a report.

Layer: cli; pure.
"""

from __future__ import annotations

LIST_STYLE = """
main{max-width:88rem}
main>header{display:flex;flex-wrap:wrap;gap:.5rem 1.5rem;align-items:center;border:0;padding:0}
#chosen{flex:0 1 auto}form{display:flex;gap:.4rem;flex:1 1 14rem}
input[type=search],input[type=password]{flex:1;min-width:0;max-width:26rem}
input,button,.chip{font:inherit;font-size:.9rem;color:inherit;background:var(--card);
border:1px solid var(--line);border-radius:.4rem;padding:.2rem .6rem}
.out{justify-content:flex-end;margin-top:2rem}
a{color:inherit}nav a,.chip,.runs th a,.runs td.name a{text-decoration:none}
nav{display:flex;gap:1rem;margin-bottom:.6rem;font-size:.9rem}
nav a,.runs td.name a{color:var(--link)}
:root{--link:#0969da}@media(prefers-color-scheme:dark){:root{--link:#58a6ff}}
#summary{display:flex;flex-wrap:wrap;gap:.4rem;align-items:center;margin:.6rem 0}
.chip.bad b{color:var(--bad)}.chip.good b{color:var(--good)}.chip.note b{color:var(--note)}
header td:first-child,.runs .phase b{white-space:nowrap}
#output pre{display:flex;flex-direction:column-reverse;max-height:24rem;overflow:auto}
.chip.on{border-color:var(--fg)}
#stale{position:sticky;top:0;z-index:1;background:var(--bg);padding:.5rem 1rem;margin:0;
border-bottom:1px solid var(--note)}
.runs{width:100%;margin:0}
.runs td,.runs th{border-top:1px solid var(--line);padding:.35rem .8rem .35rem 0}
.runs th{border:0;font-weight:400;color:var(--dim);font-size:.8rem;white-space:nowrap}
.runs small{display:block;color:var(--dim);font-size:.75rem;max-width:22rem;overflow-wrap:anywhere}
.runs td.name{min-width:9rem}.runs td.name a{font-weight:600}
.bare .queue{display:none}
.runs b{font-weight:600}.runs b.bad{color:var(--bad)}.runs b.good{color:var(--good)}
.runs b.note{color:var(--note)}
.runs td.step,.runs td.goodput,.runs td.failures,.runs td.checkpoint{white-space:nowrap;
font-variant-numeric:tabular-nums}
.runs td.pick{width:1.8rem}
.runs td.spark{width:8rem;padding-top:.5rem}
.runs td.spark svg{display:block;width:7.5rem;height:1.6rem;
overflow:visible}
.runs td.spark path{stroke:var(--link);stroke-width:1.5}
.wide td{overflow-wrap:break-word}#advice>p{margin-top:1rem}
table:not(.runs) th,.wide table:not(.runs) tr:not(.below) td:first-child{white-space:nowrap}
.wide table:not(.runs) td{min-width:4.5rem}.wide table:not(.runs) td:last-child{min-width:9rem}
#curves .c0{fill:var(--c2)}#curves .c2{fill:var(--c0)}
#curves path.c0{fill:none;stroke:var(--c2)}#curves path.c2{fill:none;stroke:var(--c0)}
@media(max-width:48rem){.runs .cause,.runs .queue,.runs .goodput,.runs .checkpoint,
.runs .failures{display:none}
.runs td.spark,.runs td.spark svg{width:4.5rem}.runs td.name{min-width:7rem}}
@media(max-width:32rem){.runs .spark{display:none}.runs td.phase{min-width:7.2rem}
.runs td.step{min-width:5.4rem}.runs .phase b,.runs td.step{white-space:normal}}
"""
