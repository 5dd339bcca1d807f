import sys, time
from edgescope.isolate import fresh
from edgescope.records import Trial
from edgescope.analysis.cells.alternation import pairs, speedup, blocks
a=Trial(model="mobilenet_v2",backend="torch_eager",max_s=1.0,min_s=1.0,turn_s=0.1)
b=Trial(model="mobilenet_v2",backend=sys.argv[1],precision=sys.argv[2],max_s=1.0,min_s=1.0,turn_s=0.1)
for t in (a,b): print(fresh.prepare(t))
A=[];B=[]
for n in range(int(sys.argv[3])):
    t0=time.time()
    ra,rb=fresh.pair((a,b),"confirming")
    A.append(ra);B.append(rb)
    print(time.time()-t0, ra.status, rb.status, ra.reason, rb.reason)
    if ra.alternation:
        print([f"{x:.3f}" for x in blocks(rb,ra).logs], ra.alternation.idle_share, rb.alternation.idle_share, ra.verdict, ra.metrics["throughput_sps"], rb.metrics["latency_p50_s"])
print(speedup(pairs(B,A)))
