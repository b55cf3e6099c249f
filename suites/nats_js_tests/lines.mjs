// A reporter of node's test runner: one line of JSON for each test.
export default async function* lines(events) {
  for await (const { type, data } of events) {
    if ((type === "test:pass" || type === "test:fail") && data.details?.type !== "suite") {
      const error = data.details?.error;
      const status = data.skip !== undefined ? "skip" : type === "test:pass" ? "pass" : "fail";
      yield JSON.stringify({ test: data.name, status, text: error ? String(error.cause?.stack ?? error.stack ?? error) : "" }) + "\n";
    }
  }
}
