-- A small shop, with made-up customers and orders. Run it with
--   penstock run examples/shop.sql
-- It ends by itself after about half a minute; Ctrl-C ends it earlier.

CREATE TABLE customers (
  id BIGINT NOT NULL PRIMARY KEY,
  name STRING,
  region STRING
) WITH (
  'connectors' = '[{
    "transport": {
      "name": "datagen",
      "config": {
        "seed": 1,
        "plan": [{
          "limit": 500,
          "fields": {
            "name": { "strategy": "name" },
            "region": { "strategy": "zipf", "values": ["north", "south", "east", "west", "overseas"] }
          }
        }]
      }
    }
  }]'
);

-- First 5,000 orders at once, then 200 a second whose ids come up again: those are updates.
CREATE TABLE orders (
  id BIGINT NOT NULL PRIMARY KEY,
  customer_id BIGINT NOT NULL,
  amount DECIMAL(8, 2),
  status STRING,
  ordered_at TIMESTAMP
) WITH (
  'connectors' = '[{
    "transport": {
      "name": "datagen",
      "config": {
        "seed": 2,
        "plan": [
          {
            "limit": 5000,
            "fields": {
              "customer_id": { "strategy": "uniform", "range": [0, 500] },
              "amount": { "strategy": "uniform", "range": [1, 200] },
              "status": { "values": ["new", "paid", "sent"] },
              "ordered_at": { "range": ["2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"], "scale": 60000 }
            }
          },
          {
            "rate": 200,
            "limit": 5000,
            "fields": {
              "id": { "strategy": "zipf", "range": [0, 20000] },
              "customer_id": { "strategy": "zipf", "range": [0, 500] },
              "amount": { "strategy": "uniform", "range": [1, 200], "null_percentage": 2 },
              "status": { "strategy": "uniform", "values": ["new", "paid", "sent", "returned"] },
              "ordered_at": { "range": ["2026-06-01T00:00:00Z", "2027-01-01T00:00:00Z"], "scale": 60000 }
            }
          }
        ]
      }
    }
  }]'
);

-- A join and a group by: a change of one order touches one group.
CREATE MATERIALIZED VIEW by_region AS
SELECT c.region, o.status, count(*) AS orders, sum(o.amount) AS amount
FROM orders o JOIN customers c ON o.customer_id = c.id
GROUP BY c.region, o.status;

-- A view over a view; it changes seldom, so each change is printed.
CREATE MATERIALIZED VIEW leading_region WITH ('connectors' = '[{ "transport": { "name": "print" } }]') AS
SELECT region, sum(amount) AS amount
FROM by_region
WHERE status <> 'returned'
GROUP BY region
ORDER BY amount DESC, region
LIMIT 1;

-- The five customers who bought most.
CREATE MATERIALIZED VIEW top_customers AS
SELECT c.name, sum(o.amount) AS amount
FROM orders o JOIN customers c ON o.customer_id = c.id
GROUP BY c.id, c.name
ORDER BY amount DESC, c.name
LIMIT 5;

-- What each customer had bought by each order.
CREATE MATERIALIZED VIEW running_total AS
SELECT customer_id, id, ordered_at, sum(amount) OVER (PARTITION BY customer_id ORDER BY ordered_at, id) AS total
FROM orders;
