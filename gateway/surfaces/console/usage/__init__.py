"""The page of usage: spend, requests and tokens over time, compared with the period before."""
