"""AIPerf's HTTP client and its parser of answers on a server, for generation_client.py; runs in AIPerf's environment.

It writes its version, then for each line {"requests": N, "tokens": N} it reads a list of {ttft_s, itl_s, cpu_s}.
What runs is its transport and its parser of the stream alone. AIPerf itself spreads a run over processes (workers,
record processors, a controller), counts tokens with a tokenizer, and sends every record between them; none of that is
here, so its whole cost is higher than what this measures.
"""

import asyncio
import json
import sys
import time
from importlib import metadata
from typing import Any

from aiperf.transports.aiohttp_client import AioHttpClient


async def one(client: AioHttpClient, url: str, number: int, tokens: int) -> dict[str, float]:
    """Return what one request took, by AIPerf's own record of it."""
    used = time.process_time()
    content = f"number {number} is the first that I think of today"
    body = {
        "model": "fast",
        "messages": [{"role": "user", "content": content}],
        "stream": True,
        "max_completion_tokens": tokens,
        "stream_options": {"include_usage": True},
    }
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
    record = await client.post_request(f"{url}/chat/completions", json.dumps(body).encode(), headers)
    times, count = list[int](), 0
    for response in record.responses:
        data: Any = response.get_json()
        if not data:
            continue
        count = (data.get("usage") or {}).get("completion_tokens", count)
        if any((choice.get("delta") or {}).get("content") for choice in data["choices"]):
            times.append(response.perf_ns)
    return {
        "ttft_s": (times[0] - record.start_perf_ns) * 1e-9,
        "itl_s": (times[-1] - times[0]) * 1e-9 / (count - 1),
        "cpu_s": time.process_time() - used,
    }


async def main() -> None:
    """Answer turns until the input ends."""
    client = AioHttpClient()
    print(json.dumps({"aiperf": metadata.version("aiperf")}), flush=True)
    await one(client, sys.argv[1], 0, 8)
    number = 1_000_000
    while line := await asyncio.to_thread(sys.stdin.readline):
        asked = json.loads(line)
        rows = []
        for _ in range(asked["requests"]):
            number += 1
            rows.append(await one(client, sys.argv[1], number, asked["tokens"]))
        print(json.dumps(rows), flush=True)
    await client.close()


if __name__ == "__main__":
    asyncio.run(main())
