// Makes a container with a signed request: container.js URL ACCOUNT CONTAINER KEY.
const [url, account, container, key] = process.argv.slice(2);
const date = new Date().toUTCString();
const version = "2021-08-06";
const text =
  "PUT" + "\n".repeat(12) + `x-ms-date:${date}\nx-ms-version:${version}\n` +
  `/${account}/${account}/${container}\nrestype:container`;
const hmac = require("crypto").createHmac("sha256", Buffer.from(key, "base64"));
const authorization = `SharedKey ${account}:${hmac.update(text, "utf8").digest("base64")}`;
const headers = { "x-ms-date": date, "x-ms-version": version, "content-length": 0, authorization };
const request = require("http").request(url, { method: "PUT", headers }, (answer) => {
  answer.resume();
  if (answer.statusCode !== 201) {
    console.error(`status ${answer.statusCode}`);
    process.exitCode = 1;
  }
});
request.end();
