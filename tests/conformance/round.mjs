// A store, search and supersede round, and a refused call, with the TypeScript clients of both generations.
//
//     node round.mjs URL COMMAND [ARGUMENT …]      a server over HTTP, and how to start one over stdio
//
// Ends with 0 after a line for each client and transport, else with 1 and what was wrong.

import assert from "node:assert/strict";
import { Client as First } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as FirstStdio } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport as FirstHttp } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { Client as Second, StreamableHTTPClientTransport as SecondHttp } from "@modelcontextprotocol/client";
import { StdioClientTransport as SecondStdio } from "@modelcontextprotocol/client/stdio";

const [url, command, ...args] = process.argv.slice(2);
const started = { command, args, env: process.env, stderr: "inherit" };
const about = { name: "round", version: "1" };
const negotiated = (mode) => ({ versionNegotiation: { mode } });

const rounds = {
  "sdk 1.x over stdio": [() => new First(about), () => new FirstStdio(started)],
  "sdk 1.x over HTTP": [() => new First(about), () => new FirstHttp(new URL(url))],
  "client 2.x over stdio": [() => new Second(about, negotiated("auto")), () => new SecondStdio(started)],
  "client 2.x over HTTP": [() => new Second(about, negotiated("auto")), () => new SecondHttp(new URL(url))],
  "client 2.x over HTTP, handshake": [() => new Second(about, negotiated("legacy")), () => new SecondHttp(new URL(url))],
};

for (const [name, [makeClient, makeTransport]] of Object.entries(rounds)) {
  const client = makeClient();
  await client.connect(makeTransport());
  const project = name.replaceAll(/[^a-z0-9]+/gi, "-");
  const call = async (tool, given) => {
    const answer = await client.callTool({ name: tool, arguments: given });
    assert(!answer.isError, `${name}: ${tool}: ${JSON.stringify(answer.content)}`);
    return answer.structuredContent;
  };
  const { tools } = await client.listTools();
  assert(tools.length > 30, `${name}: ${tools.length} tools`);
  await call("create_project", { name: project });
  const old = await call("store_memory", { content: "Lives in Seattle", project });
  const fresh = await call("store_memory", { content: "Moved to Austin", project });
  await call("supersede_memory", { old_memory_id: old.created.id, new_memory_id: fresh.created.id, project });
  const found = await call("search_memories", { query: "Seattle Austin", project });
  assert.deepEqual(found.memories.map((each) => each.id), [fresh.created.id], name);
  const refused = await client.callTool({ name: "forget_memory", arguments: { id: "mem_nobody", project } });
  assert.equal(refused.isError, true, name);
  assert.equal(refused.structuredContent.error.code, "MEMORY_NOT_FOUND", name);
  const read = await client.readResource({ uri: `mem://item/${fresh.created.id}?project=${project}` });
  assert.equal(JSON.parse(read.contents[0].text).project, project, name);
  await client.close();
  console.log(`✓ ${name}`);
}
process.exit(0);
